"""The package's version, which is concert's."""

VERSION = "0.1.0"

#!/usr/bin/env python3
"""Manual pages and completions hold every command and flag of --help, in every shell that is here.

  pages_test.py BIN_DIR
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)
PROGRAMS = ("concertd", "concertctl", "concert-bench")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CONCERT_")}


def output_of(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, **more).stdout


def read_help(program, path=()):
    """{path: (names of subcommands, flags, flags that take a value)} of a program and all below it, as --help prints them."""
    children, flags, valued = [], set(), set()
    heading = ""
    for line in output_of(os.path.join(BIN, program), *path, "--help").splitlines():
        if re.match(r"\S.*:$", line):
            heading = line
        elif heading == "Subcommands:" and (child := re.match(r"  (\S+)", line)):
            children.append(child[1])
        elif option := re.match(r"  (?:  )?((?:-[\w-]+,)*--?[\w-]+)(.*)", line):
            names = option[1].split(",")
            flags |= set(names)
            # Help begins in a column of its own, which the names may have used up.
            if re.match(r" [A-Z]{3,}| \(", option[2]) or program == "concertd" and heading == "Settings:":
                valued |= set(names)
    tree = {path: (children, flags, valued)}
    for child in children:
        tree |= read_help(program, (*path, child))
    return tree


def all_flags(program, tree, path):
    """concertctl's commands take the flags of those above them as well (CLI11's fallthrough)."""
    first = 0 if program == "concertctl" else len(path)
    return set().union(*(tree[path[:depth]][1] for depth in range(first, len(path) + 1)))


class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trees = {program: read_help(program) for program in PROGRAMS}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def each_command(self):
        for program, tree in self.trees.items():
            for path in tree:
                yield program, tree, path

    def page(self, program, kind):
        """The name of a file that holds the page, and its text."""
        name, text = os.path.join(self.folder.name, f"{program}.{kind}"), output_of(os.path.join(BIN, program), "--page", kind)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        return name, text

    def test_help_was_understood(self):
        tree = self.trees["concertctl"]
        self.assertIn(("tune", "run"), tree)
        self.assertIn("--budget", tree[("tune", "run")][2])
        self.assertIn("--shapes", tree[("tune", "run")][1])
        self.assertIn("--spin-us", self.trees["concertd"][()][1])

    def test_version_names_the_commit(self):
        for program in PROGRAMS:
            self.assertRegex(output_of(os.path.join(BIN, program), "--version"),
                             rf"^{program} \d+\.\d+\.\d+ \(commit ([0-9a-f]{{12}}(-dirty)?|unknown)\)\n$")

    def test_manual_pages(self):
        for program, tree, path in self.each_command():
            text = self.page(program, "man")[1].replace("\\-", "-")
            children, flags, _ = tree[path]
            for name in children:
                if tree[(*path, name)][0]:  # a command that only leads to others
                    continue
                self.assertIn(f".SS {' '.join((program, *path, name))}\n", text)
            own = text.split(f".SS {' '.join((program, *path))}\n")[-1].split(".SS ")[0]
            for flag in flags if not path or not children else ():
                self.assertRegex(own, rf"\.TP\n\.B .*(?<![\w-]){re.escape(flag)}(?![\w-])")

    def test_manual_pages_are_valid(self):
        if not shutil.which("groff"):
            self.skipTest("no groff")
        for program, page in [(name, "man") for name in PROGRAMS] + [("concertd", "settings")]:
            found = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", self.page(program, page)[0]],
                                   capture_output=True, text=True, check=True).stderr
            self.assertEqual(found, "", program)

    def test_every_setting_is_in_the_manual_of_the_file(self):
        text = self.page("concertd", "settings")[1].replace("\\-", "-").replace("\\(dq", '"')
        settings = re.findall(r"^(\w+ = .*?)  #", output_of(os.path.join(BIN, "concertd"), "--print-config"), re.M)
        self.assertGreater(len(settings), 10)
        for setting in settings:
            self.assertIn(f".TP\n.B {setting}\n", text)
        self.assertNotIn('"', re.sub(r"^\.TH .*", "", self.page("concertd", "settings")[1]))  # roff would swallow it

    def test_bash(self):
        for program, tree, path in self.each_command():
            script, text = self.page(program, "bash")
            words = " ".join((program, *path))
            function = re.search(r"-F (\S+)", text)[1]
            ask = f"source {script}; COMP_WORDS=({words} ''); COMP_CWORD={len(path) + 1}; {function}; " \
                  'printf "%s\\n" "${COMPREPLY[@]}"'
            self.assertEqual(set(output_of("bash", "-c", ask).split()), set(tree[path][0]) | all_flags(program, tree, path), path)
            for flag in tree[path][2]:  # a value: bash completes file names
                ask = f"source {script}; COMP_WORDS=({words} {flag} ''); COMP_CWORD={len(path) + 2}; {function}; " \
                      'echo "${#COMPREPLY[@]}"'
                self.assertEqual(output_of("bash", "-c", ask), "0\n", flag)

    def test_zsh(self):
        # Its completion needs a terminal: here its tables are asked.
        for program, tree, path in self.each_command():
            script, text = self.page(program, "zsh")
            place = re.search(rf"^    '{''.join(' ' + name for name in path)}'\)\n(.*?)\n      ;;", text, re.M | re.S)[1]
            names = set(re.findall(r" '([\w-]+):", place))
            self.assertEqual(names, set(tree[path][0]) | all_flags(program, tree, path), path)
            if shutil.which("zsh"):
                output_of("zsh", "-n", script)

    def test_fish(self):
        for program, tree, path in self.each_command():
            script, text = self.page(program, "fish")
            place = "".join(" " + name for name in path)
            lines = [line for line in text.splitlines() if line.startswith("complete ") and f"_at \\'{place}\\'' " in line]
            names = {name for line in lines for name in re.findall(r" -a ([\w-]+) ", line)}
            names |= {"-" + name for line in lines for name in re.findall(r" -s (\w) ", line)}
            names |= {"--" + name for line in lines for name in re.findall(r" -l ([\w-]+) ", line)}
            self.assertEqual(names, set(tree[path][0]) | all_flags(program, tree, path), path)
            if shutil.which("fish"):
                shown = output_of("fish", "--no-config", "-c", f"source {script}; complete -C '{' '.join((program, *path))} -'"
                                  f"; complete -C '{' '.join((program, *path))} '")
                shown = {line.split("\t")[0] for line in shown.splitlines()}
                self.assertLessEqual(names, shown)


if __name__ == "__main__":
    unittest.main()

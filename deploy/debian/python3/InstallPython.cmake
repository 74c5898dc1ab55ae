# Run by cpack: the Python package, as the wheel of client/python holds it, where Debian's python3 looks. CONCERT_PYTHON is its
# source.
set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/python3/dist-packages")
string(RANDOM LENGTH 12 name)
set(work "$ENV{DESTDIR}/../concert-wheel-${name}")

# Of a copy, because setuptools writes beside the sources; nothing is taken from a network.
file(COPY "${CONCERT_PYTHON}/" DESTINATION "${work}/source" PATTERN __pycache__ EXCLUDE PATTERN build EXCLUDE
     PATTERN "*.egg-info" EXCLUDE)
execute_process(
  COMMAND /usr/bin/python3 -m pip wheel -q --no-deps --no-index --no-build-isolation -w "${work}" "${work}/source"
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel "${work}/concert-*.whl")
file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${folder}")

# As dh_python3 leaves it: dpkg knows the files, and pip is told that they are not its to remove.
file(GLOB info "${folder}/concert-*.dist-info")
file(REMOVE "${info}/RECORD")
file(WRITE "${info}/INSTALLER" "debian\n")
file(GLOB_RECURSE files "${folder}/*")
file(CHMOD ${files} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(REMOVE_RECURSE "${work}")

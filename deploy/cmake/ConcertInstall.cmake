# Where things are installed and in which part: concertd, libconcert0, libconcert-dev and concert-tools, which are also the
# Debian packages. Nothing installed holds the prefix of configure time, so that `cmake --install --prefix` is free to choose.
include(GNUInstallDirs)
set(CONCERT_ZSH_DIR "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" CACHE STRING "Where completions for zsh go")

# concert_relative_dir(OUT FROM TO): the way from one install folder to another, both as GNUInstallDirs names them.
function(concert_relative_dir out from to)
  GNUInstallDirs_get_absolute_install_dir(from_full from BINDIR)
  GNUInstallDirs_get_absolute_install_dir(to_full to BINDIR)
  file(RELATIVE_PATH relative "${from_full}" "${to_full}")
  set(${out} "${relative}" PARENT_SCOPE)
endfunction()

# concert_install_program(TARGET COMPONENT [OPTIONAL] [DESTINATION DIR] [MANUAL SECTION]): OPTIONAL, if it has been built.
# With MANUAL, also its manual page and completions, which it prints itself. Programs find libconcert from where they lie;
# CMAKE_SKIP_INSTALL_RPATH leaves that to the system.
function(concert_install_program target component)
  cmake_parse_arguments(ARG "OPTIONAL" "DESTINATION;MANUAL" "" ${ARGN})
  if(NOT ARG_DESTINATION)
    set(ARG_DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
  if(ARG_OPTIONAL)
    set(optional OPTIONAL)
  endif()
  concert_relative_dir(to_libraries "${ARG_DESTINATION}" "${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "\$ORIGIN/${to_libraries}")
  install(TARGETS ${target} RUNTIME DESTINATION "${ARG_DESTINATION}" COMPONENT ${component} ${optional})
  if(ARG_MANUAL)
    install(CODE "
      set(CONCERT_PROGRAM \"$<TARGET_FILE:${target}>\")
      set(CONCERT_PAGES_BUILD \"${CMAKE_CURRENT_BINARY_DIR}/pages\")
      set(CONCERT_MANUAL_SECTION ${ARG_MANUAL})
      set(CONCERT_MANDIR \"${CMAKE_INSTALL_MANDIR}\")
      set(CONCERT_DATADIR \"${CMAKE_INSTALL_DATADIR}\")
      set(CONCERT_PACKAGES \"${CONCERT_PACKAGES}\")
      set(CONCERT_ZSH_DIR \"${CONCERT_ZSH_DIR}\")
      include(\"${CMAKE_SOURCE_DIR}/deploy/cmake/InstallPages.cmake\")" COMPONENT ${component})
  endif()
endfunction()

# Run by `cmake --install` for a program with a manual page (concert_install_program): asks the program for its pages and
# installs them.
get_filename_component(CONCERT_NAME "${CONCERT_PROGRAM}" NAME)

function(concert_install_page page dir file)
  set(text "${CONCERT_PAGES_BUILD}/${file}")
  file(MAKE_DIRECTORY "${CONCERT_PAGES_BUILD}")
  execute_process(COMMAND "${CONCERT_PROGRAM}" --page ${page} OUTPUT_FILE "${text}" COMMAND_ERROR_IS_FATAL ANY)
  if(NOT IS_ABSOLUTE "${dir}")
    set(dir "${CMAKE_INSTALL_PREFIX}/${dir}")
  endif()
  file(INSTALL "${text}" DESTINATION "${dir}")
endfunction()

if(EXISTS "${CONCERT_PROGRAM}")
  concert_install_page(man "${CONCERT_MANDIR}/man${CONCERT_MANUAL_SECTION}" ${CONCERT_NAME}.${CONCERT_MANUAL_SECTION})
  concert_install_page(bash "${CONCERT_DATADIR}/bash-completion/completions" ${CONCERT_NAME})
  concert_install_page(zsh "${CONCERT_ZSH_DIR}" _${CONCERT_NAME})
  concert_install_page(fish "${CONCERT_DATADIR}/fish/vendor_completions.d" ${CONCERT_NAME}.fish)
  if(CONCERT_NAME STREQUAL concertd)
    concert_install_page(settings "${CONCERT_MANDIR}/man5" concert.toml.5)
  endif()
endif()

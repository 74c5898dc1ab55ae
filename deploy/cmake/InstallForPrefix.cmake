# Run by `cmake --install`: the unit and the configuration, whose text or place depends on the prefix given there.
# deploy/CMakeLists.txt sets CONCERT_DEPLOY, CONCERT_UNIT_DIR and the CONCERT_*DIR that are absolute or below the prefix.
function(concert_absolute variable)
  if(NOT IS_ABSOLUTE "${${variable}}")
    set(${variable} "${CMAKE_INSTALL_PREFIX}/${${variable}}" PARENT_SCOPE)
  endif()
endfunction()

# As the GNU coding standards and the file system hierarchy want it: a system in /usr is configured in /etc.
if(CMAKE_INSTALL_PREFIX MATCHES "^(/usr)?/?$" AND CONCERT_SYSCONFDIR STREQUAL "etc")
  set(CONCERT_SYSCONFDIR /etc)
endif()
foreach(dir BINDIR DOCDIR SYSCONFDIR UNIT_DIR)
  concert_absolute(CONCERT_${dir})
endforeach()

configure_file("${CONCERT_DEPLOY}/systemd/concertd.service.in" "${CONCERT_DEPLOY_BUILD}/concertd.service" @ONLY)
file(INSTALL "${CONCERT_DEPLOY_BUILD}/concertd.service" DESTINATION "${CONCERT_UNIT_DIR}")

# What the operator has written stays.
if(EXISTS "$ENV{DESTDIR}${CONCERT_SYSCONFDIR}/concert/concert.toml")
  message(STATUS "Kept: $ENV{DESTDIR}${CONCERT_SYSCONFDIR}/concert/concert.toml")
else()
  # The defaults, but on a GPU node the unit must not serve what is simulated.
  file(READ "${CONCERT_DEPLOY}/concert.toml" defaults)
  string(REPLACE "unusable_gpu = \"degraded\"  # default" "unusable_gpu = \"error\"" settings "${defaults}")
  if(settings STREQUAL defaults)
    message(FATAL_ERROR "deploy/concert.toml has no default of unusable_gpu")
  endif()
  file(WRITE "${CONCERT_DEPLOY_BUILD}/concert.toml" "${settings}")
  file(INSTALL "${CONCERT_DEPLOY_BUILD}/concert.toml" DESTINATION "${CONCERT_SYSCONFDIR}/concert")
endif()

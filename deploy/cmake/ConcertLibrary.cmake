# concert_library(NAME SOURCES ... [DEPS ...])
#
# Makes a static library in the room (top-level folder) of the calling CMakeLists.txt and checks, at
# configure time, that its DEPS obey the one-way dependencies of docs/architecture.md:
#
#   proto, policies  <-  kernels  <-  daemon          proto  <-  client
#
# concert_executable() is the same for programs. Targets that are not concert's own are not checked.
#
# With CONCERT_UNITY eight sources of a target are compiled at a time, so that what they all include is read and
# instantiated once (docs/adr/0018-time-to-build.md). Names of one target's files must differ then, also those in
# anonymous namespaces. ALONE names sources that are compiled by themselves all the same.
set(CONCERT_MAY_USE_proto "")
set(CONCERT_MAY_USE_policies "")
set(CONCERT_MAY_USE_kernels proto policies)
set(CONCERT_MAY_USE_client proto)
set(CONCERT_MAY_USE_daemon proto policies kernels)
set(CONCERT_MAY_USE_tests proto policies kernels client daemon)

define_property(TARGET PROPERTY CONCERT_ROOM BRIEF_DOCS "Top-level folder a concert target lives in")

function(_concert_setup target)
  cmake_parse_arguments(ARG "" "" "DEPS;ALONE" ${ARGN})
  file(RELATIVE_PATH where "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX REPLACE "/.*" "" room "${where}")
  set_target_properties(${target} PROPERTIES CONCERT_ROOM "${room}" UNITY_BUILD ${CONCERT_UNITY})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  foreach(dep IN LISTS ARG_DEPS)
    if(TARGET ${dep})
      get_target_property(dep_room ${dep} CONCERT_ROOM)
      if(dep_room AND NOT dep_room STREQUAL room AND NOT dep_room IN_LIST CONCERT_MAY_USE_${room})
        message(FATAL_ERROR
          "${target} (in ${room}/) may not depend on ${dep} (in ${dep_room}/): see docs/architecture.md")
      endif()
    endif()
  endforeach()
endfunction()

function(concert_library target)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES} ${ARG_ALONE})
    target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${target} PUBLIC ${ARG_DEPS})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${target} INTERFACE ${ARG_DEPS})
  endif()
  _concert_setup(${target} DEPS ${ARG_DEPS} ALONE ${ARG_ALONE})
endfunction()

function(concert_executable target)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;DEPS" ${ARGN})
  add_executable(${target} ${ARG_SOURCES} ${ARG_ALONE})
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${ARG_DEPS})
  _concert_setup(${target} DEPS ${ARG_DEPS} ALONE ${ARG_ALONE})
endfunction()

# concert_test(NAME SOURCES ... DEPS ...): a GoogleTest program registered with CTest under NAME, with a
# time limit so that a hang is a failure. LABELS select what tests/run starts.
function(concert_test target)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;ALONE;DEPS;LABELS" ${ARGN})
  concert_executable(${target} SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${target} COMMAND ${target})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
    # Sanitizers slow code by 2 to 15 times (their manuals). Less than a sanitizer's share of .ci/run, which
    # takes what it had to cut short for passed.
    if(CONCERT_SANITIZE)
      set(ARG_TIMEOUT 360)
    endif()
  endif()
  set_tests_properties(${target} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

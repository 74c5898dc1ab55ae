# Language level, warnings, sanitizers and the optional compiler cache: the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Optimised builds keep frame pointers and line tables, for perf and for readable sanitizer reports.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Checks what proto/mutex.h and absl's mutex are told: which member needs which mutex.
  add_compile_options(-Wthread-safety)
else()
  # gcc 12 sees uninitialised members inside nlohmann-json where there are none.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
# Designated initialisers name what matters and leave the rest zero.
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers -fno-omit-frame-pointer)

if(CONCERT_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(CONCERT_SANITIZE STREQUAL "thread")
  # -Wno-tsan: gcc warns that TSan does not model atomic_thread_fence; the shared-memory code pairs
  # every fence with an atomic access that TSan does see.
  add_compile_options(-fsanitize=thread -Wno-tsan)
  add_link_options(-fsanitize=thread)
elseif(CONCERT_SANITIZE)
  message(FATAL_ERROR "CONCERT_SANITIZE is '${CONCERT_SANITIZE}'; use 'address' or 'thread'")
endif()

find_program(CONCERT_CCACHE ccache)
if(CONCERT_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${CONCERT_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CONCERT_CCACHE}")
endif()
find_program(CONCERT_MOLD mold)
if(CONCERT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

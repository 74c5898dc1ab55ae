# Every third-party package, found once. Debian 12 and Ubuntu 24.04 ship all of them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(SQLite3 REQUIRED)
# toml++ and libsystemd have no CMake config on Debian 12, but pkg-config files. gRPC has one, too, that names 200
# libraries and takes pkg-config 16 s of CPU time: programs call three of them by themselves.
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
# With wide characters: clients may have names in any script.
pkg_check_modules(NCURSES REQUIRED IMPORTED_TARGET ncursesw)
# Its CMake config looks for curl, which only pushing needs.
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-pull)
foreach(name grpc++ grpc gpr grpc++_reflection)
  find_library(CONCERT_LIB_${name} ${name} REQUIRED)
  mark_as_advanced(CONCERT_LIB_${name})
endforeach()
find_path(CONCERT_GRPC_INCLUDE_DIR grpcpp/grpcpp.h REQUIRED)
mark_as_advanced(CONCERT_GRPC_INCLUDE_DIR)
add_library(concert_grpc INTERFACE)
target_include_directories(concert_grpc SYSTEM INTERFACE "${CONCERT_GRPC_INCLUDE_DIR}")
target_link_libraries(concert_grpc INTERFACE
  "${CONCERT_LIB_grpc++}" "${CONCERT_LIB_grpc}" "${CONCERT_LIB_gpr}" absl::base absl::strings absl::synchronization)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
if(CONCERT_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()

# The cuda device needs the toolkit's headers and nvcc at build time; libcuda, cuBLASLt and NCCL are
# opened at run time, so that one binary starts on nodes with and without a GPU.
set(CONCERT_WITH_CUDA OFF)
if(NOT CONCERT_CUDA STREQUAL "off")
  find_package(CUDAToolkit QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND NCCL_INCLUDE_DIR AND NVTX_INCLUDE_DIR)
    set(CONCERT_WITH_CUDA ON)
  elseif(CONCERT_CUDA STREQUAL "on")
    message(FATAL_ERROR "CONCERT_CUDA=on, but the CUDA toolkit, nvcc, nccl.h or nvtx3/nvToolsExt.h was not found")
  endif()
endif()
message(STATUS "concert: cuda device ${CONCERT_WITH_CUDA}")

# concert_embed_kernels(TARGET [ARCHITECTURES -gencode=...] FILE.cu ...): compiles each file to a fatbin and links it into TARGET as bytes
# named concert_image_FILE. The driver loads it; neither nvcc's host code nor the CUDA runtime is linked.
#
# Machine code for Ampere and Hopper, and PTX that the driver compiles for whatever comes later.
set(CONCERT_CUDA_ARCHITECTURES
  -gencode=arch=compute_80,code=sm_80
  -gencode=arch=compute_90,code=sm_90
  -gencode=arch=compute_90,code=compute_90)

function(concert_embed_kernels target)
  set(architectures ${CONCERT_CUDA_ARCHITECTURES})
  if(ARGV1 STREQUAL ARCHITECTURES)
    set(architectures ${ARGV2})
    list(REMOVE_AT ARGN 0 1)
  endif()
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME_WE)
    get_filename_component(path "${source}" ABSOLUTE)
    set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
    add_custom_command(
      OUTPUT "${image}"
      COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" -fatbin -Xfatbin -compress-all -std=c++20 -O3
              ${architectures} "-I${CMAKE_SOURCE_DIR}" -MD -MF "${image}.d" -o "${image}" "${path}"
      DEPENDS "${path}"
      DEPFILE "${image}.d"
      COMMENT "Compiling CUDA kernels of ${source}"
      VERBATIM)
    # cuModuleLoadData finds the end of a fatbin by itself.
    concert_embed(${target} concert_image_${name} "${image}")
  endforeach()
endfunction()

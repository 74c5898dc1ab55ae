# Read by cpack, which may have been given another CPACK_DEBIAN_PACKAGE_RELEASE: packages of one build belong together.
foreach(package CONCERT-TOOLS LIBCONCERT-DEV)
  set(CPACK_DEBIAN_${package}_PACKAGE_DEPENDS
    "libconcert0 (= ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
endforeach()

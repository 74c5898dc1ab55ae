# Read by cpack after its options, among them another CPACK_DEBIAN_PACKAGE_RELEASE: packages of one build belong together.
foreach(package CONCERT-TOOLS LIBCONCERT-DEV)
  set(CPACK_DEBIAN_${package}_PACKAGE_DEPENDS
    "libconcert0 (= ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
endforeach()
# The first line of each package's description is its summary; the project's would come before it.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")

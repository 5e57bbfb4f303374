# kcp-config-version.cmake -- for find_package(kcp 2.0): the version in the library's name;
# a different major version has a different interface.
get_filename_component(library "${CMAKE_CURRENT_LIST_DIR}/../../libkcp.so" REALPATH)
string(REGEX REPLACE ".*libkcp\\.so\\." "" PACKAGE_VERSION "${library}")
string(REGEX REPLACE "\\..*" "" major "${PACKAGE_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION
   AND PACKAGE_FIND_VERSION_MAJOR EQUAL major)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()

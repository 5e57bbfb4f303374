# kcp-config.cmake -- for find_package(kcp): the target kcp::kcp.
get_filename_component(KCP_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET kcp::kcp)
    add_library(kcp::kcp SHARED IMPORTED)
    set_target_properties(kcp::kcp PROPERTIES
        IMPORTED_LOCATION "${KCP_PREFIX}/lib/libkcp.so"
        INTERFACE_INCLUDE_DIRECTORIES
            "${KCP_PREFIX}/include;${KCP_PREFIX}/include/kcp")
endif()

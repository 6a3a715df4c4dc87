# Compiler warnings, hardening and instrumentation, shared by every target (docs/style.md, "Tooling").
add_library(holdfast_options INTERFACE)
target_include_directories(holdfast_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(holdfast_options INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64
    HOLDFAST_VERSION="${PROJECT_VERSION}")
target_compile_options(holdfast_options INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wstrict-prototypes
    -Wmissing-prototypes -Wformat=2 -Wundef -Wvla -Wnull-dereference -Wimplicit-fallthrough
    -fno-common -fno-omit-frame-pointer
    -include ${CMAKE_SOURCE_DIR}/base/banned.h)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(holdfast_options INTERFACE -Wduplicated-cond -Wlogical-op)
endif()
if(HOLDFAST_WERROR)
    target_compile_options(holdfast_options INTERFACE -Werror)
endif()
if(HOLDFAST_SANITIZE)
    target_compile_options(holdfast_options INTERFACE -fsanitize=${HOLDFAST_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(holdfast_options INTERFACE -fsanitize=${HOLDFAST_SANITIZE})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(holdfast_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
if(HOLDFAST_COVERAGE)
    target_compile_options(holdfast_options INTERFACE --coverage -O0)
    target_link_options(holdfast_options INTERFACE --coverage)
endif()
target_compile_options(holdfast_options INTERFACE
    -fstack-protector-strong -fstack-clash-protection -fcf-protection -ftrivial-auto-var-init=zero)
target_link_options(holdfast_options INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

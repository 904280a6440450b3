# Compiler flags that every target of the project shares: link `tierd_options`.
add_library(tierd_options INTERFACE)
target_include_directories(tierd_options INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/client_lib/include)
target_compile_definitions(tierd_options INTERFACE _FILE_OFFSET_BITS=64 TIERD_VERSION="${PROJECT_VERSION}")
target_compile_options(tierd_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align -Wformat=2 -Wimplicit-fallthrough -Wundef
  $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan> -Werror -fno-omit-frame-pointer)
if(TIERD_KILL_POINTS)
  target_compile_definitions(tierd_options INTERFACE TIERD_KILL_POINTS=1)
endif()

if(TIERD_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
elseif(TIERD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
elseif(NOT TIERD_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TIERD_SANITIZE must be empty, address or thread, not '${TIERD_SANITIZE}'")
endif()

if(TIERD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TIERD_FUZZ needs clang: -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14")
  endif()
  # Warnings are gcc's business here: the two compilers do not agree on all of them.
  target_compile_options(tierd_options INTERFACE -Wno-error)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
endif()

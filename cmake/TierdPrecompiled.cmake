# Large headers of others (Asio, JSON, GoogleTest) are parsed once per target instead of once per file.
# Every file still includes what it uses, as with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON; ccache takes part with CCACHE_SLOPPINESS=pch_defines,time_macros.
set(TIERD_PRECOMPILED_STD <algorithm> <chrono> <cstring> <functional> <memory> <optional> <string> <unordered_map> <vector>)
set(TIERD_PRECOMPILED_ASIO <boost/asio/bind_allocator.hpp> <boost/asio/io_context.hpp> <boost/asio/local/stream_protocol.hpp> <boost/asio/posix/stream_descriptor.hpp> <boost/asio/post.hpp> <boost/asio/steady_timer.hpp>)

# tierd_precompile(TARGET [ASIO] [JSON])
function(tierd_precompile target)
  cmake_parse_arguments(arg "ASIO;JSON" "" "" ${ARGN})
  set(headers ${TIERD_PRECOMPILED_STD})
  if(arg_ASIO)
    list(APPEND headers ${TIERD_PRECOMPILED_ASIO})
  endif()
  if(arg_JSON)
    list(APPEND headers <nlohmann/json.hpp>)
  endif()
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

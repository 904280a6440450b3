# Several files at once: a whole build in about half the time, which is what the scripts in tools/ that build do; a change is compiled slower, so not by default.
# Names in the unnamed namespaces of such a target may not clash.
option(TIERD_UNITY "compile several source files at once: faster whole builds, slower changes" OFF)

# tierd_unity(TARGET...)
function(tierd_unity)
  if(TIERD_UNITY)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # a class of a .cc file with members of its unnamed namespace
    endforeach()
  endif()
endfunction()

// All kernels as one program, so that a GPU loads one module.

#include "channel.cu"
#include "copy.cu"
#include "gate.cu"
#include "links.cu"
#include "pattern.cu"
#include "spin.cu"
#include "talk.cu"
#include "work.cu"

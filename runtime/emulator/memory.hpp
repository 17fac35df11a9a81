// Is an access to global or shared memory sound, and does it race? The answers are in accesses.hpp.
#pragma once

#include "agents.hpp"

namespace emu {

void log_access(Operation operation, int line, const void* p, unsigned bytes, bool active);
bool may_read_global(Operation operation, const void* p, unsigned bytes, int line);
// The part of a tensor copy that lies together; the map has checked alignments.
void may_read_global_bytes(Operation operation, const void* p, unsigned bytes, int line);
void may_write_global_bytes(Operation operation, void* p, unsigned bytes, int line);
bool within_shared(Operation operation, unsigned thread, const void* p, unsigned bytes, int line);
void report_finding(const Shadow::Finding& finding, Operation operation, unsigned thread, int line);
bool may_read_shared(Operation operation, unsigned thread, const void* p, unsigned bytes, int line);
bool may_write_shared(Operation operation, void* p, unsigned bytes, int line, bool pending);

}  // namespace emu

// Op         Which columns of a decode round stay: a draft stays when it is the token that was
//            chosen for its place, and all drafts before it have stayed.
// Math       n_taken = 1 + the number of leading c with fed[c + 1] == chosen[c].
// Shapes     fed [n_columns]: the last token of the text, then its drafts; chosen [n_columns].
#pragma once

#include <cstdint>

namespace lockstep {

int32_t verify(const int32_t* fed, const int32_t* chosen, int32_t n_columns);

}  // namespace lockstep

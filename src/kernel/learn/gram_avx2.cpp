// The same loops for x86-64 machines since 2013, which count the bits of a word with one instruction.
#include "gram_loops.hpp"

namespace bitrank {

const GramLoops avx2_gram{transpose, add_products<PlainProducts>};

}  // namespace bitrank

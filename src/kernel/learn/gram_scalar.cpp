// The path of any machine, word by word.
#include "gram_loops.hpp"

namespace bitrank {

const GramLoops scalar_gram{transpose, add_products<PlainProducts>};

}  // namespace bitrank

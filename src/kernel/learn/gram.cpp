#include "gram.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace bitrank {
namespace {

// Rows per strip, a multiple of 512: the transposed strip stays in the cache.
constexpr std::size_t strip = 512 * 16;

// Copy the upper triangle to the lower one, in squares that stay in the cache.
void mirror(double *gram, std::size_t n_bits) {
    constexpr std::size_t side = 16;
    for (std::size_t top = 0; top < n_bits; top += side)
        for (std::size_t left = 0; left <= top; left += side)
            for (std::size_t i = top; i < std::min(top + side, n_bits); ++i)
                for (std::size_t j = left; j < std::min(left + side, i); ++j)
                    gram[i * n_bits + j] = gram[j * n_bits + i];
}

}  // namespace

void add_gram(const PackedRows &rows, const std::int8_t *signs, double factor, double *gram, double *total,
              const GramLoops &loops) {
    // Pad columns with zero bits to whole 512-bit vectors: a scalar remainder would cost as much as the vectors.
    const auto words_for = [](std::size_t n_rows) { return (n_rows + 511) / 512 * 8; };
    const auto n_zeros = static_cast<std::size_t>(std::count(signs, signs + rows.n_rows, 0));
    const std::size_t room = std::min(rows.n_rows - n_zeros, strip);
    const std::size_t size = rows.n_bits * words_for(room);
    const auto memory = std::make_unique_for_overwrite<std::uint64_t[]>(3 * size);
    std::vector<std::size_t> chosen;
    chosen.reserve(room);
    for (std::size_t next = 0; next < rows.n_rows;) {
        chosen.clear();
        for (; next < rows.n_rows && chosen.size() < strip; ++next)
            if (signs[next] != 0) chosen.push_back(next);
        if (chosen.empty()) break;
        const Columns columns{memory.get(), memory.get() + size, memory.get() + 2 * size, rows.n_bits,
                              words_for(chosen.size())};
        loops.transpose(rows, signs, chosen.data(), chosen.size(), columns);
        loops.add_products(columns, factor, gram, total);
    }
    mirror(gram, rows.n_bits);
}

}  // namespace bitrank

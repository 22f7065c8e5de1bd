// Sets of up to 64 rows or blocks, as the bits of a word.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// The n lowest set bits of a word.
inline std::uint64_t lowest(std::uint64_t word, std::size_t n = 1) {
    std::uint64_t rest = word;
    while (n-- && rest) rest &= rest - 1;
    return word & ~rest;
}

inline bool has_at_least(std::uint64_t word, std::size_t n) { return (word & ~lowest(word, n - 1)) != 0; }

}  // namespace bitrank

// A 64-bit checksum at memory speed that detects any change of one word.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// Eight interleaved FNV-1a sums over little-endian 64-bit words (the last padded with zeros), then one over the length
// and these eight. Every step is a bijection of the sum.
std::uint64_t checksum(const std::uint8_t *bytes, std::size_t n);

}  // namespace bitrank

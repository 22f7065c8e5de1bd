// A 64-bit checksum that keeps up with memory; any change of one word changes it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// Eight interleaved FNV-1a sums over little-endian 64-bit words (the last one filled with zeros), then one over these
// eight and the length. Every step is a bijection of the sum.
std::uint64_t checksum(const std::uint8_t *bytes, std::size_t n);

}  // namespace bitrank

// The inner loops of a search: lower bounds of 64 weighted distances at a time, by table look-up on half bytes; one
// implementation per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// Rows per block and blocks per super-block: a cache line holds one byte of each, a word one bit of each.
constexpr std::size_t lane_count = 64;

// The tables of one query. A table has one entry per value of a half byte and starts at (2 * byte + half) * 16, the high
// half first. Entries are rounded down, so that their sum is a lower bound of the distance.
struct Tables {
    std::size_t n_bytes;
    const std::uint8_t *rows;    // indexed by the half byte of a code; the query is folded in
    const std::uint8_t *blocks;  // indexed by the half byte of (code xor query)
    const std::uint8_t *query;   // n_bytes
    std::uint16_t limit;         // the largest sum within reach; at most 254 for the 8-bit functions
};

struct Scanner {
    // For every block b in the bit set `now`, at blocks + b * n_bytes * 64, set survivors[b] to the rows whose sum is
    // within the limit. `live` has all blocks of the super-block that are still to be scanned.
    void (*rows8)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
                  std::uint64_t *survivors);
    void (*rows16)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
                   std::uint64_t *survivors);
    // Blocks of a super-block within the limit, judged by the bits that all rows of a block share.
    std::uint64_t (*blocks8)(const std::uint8_t *bounds, const Tables &tables);
    std::uint64_t (*blocks16)(const std::uint8_t *bounds, const Tables &tables);
    // Blocks whose rows differ only in the bits set in `free` (n_bytes).
    std::uint64_t (*uniform)(const std::uint8_t *bounds, const std::uint8_t *free, std::size_t n_bytes);
};

extern const Scanner scalar_scanner;
#if defined(__x86_64__)
extern const Scanner avx2_scanner;
extern const Scanner avx512_scanner;
#elif defined(__aarch64__)
extern const Scanner neon_scanner;
#endif

}  // namespace bitrank

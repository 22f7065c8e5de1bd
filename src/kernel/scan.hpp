// The inner loops of a search: lower bounds of 64 weighted distances at a time, by table look-up on half bytes.
// One implementation an instruction set, each in its own file; `scanner` chooses at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bitrank {

// Rows of a block, blocks of a super-block: one cache line a byte of the code, one bit of a word a row.
constexpr std::size_t lane_count = 64;

// What one query brings to a scan. A table has 16 entries, one a value of a half byte: tables[(2 * byte + half) * 16],
// the high half first. Entries are rounded down, so that their sum is a lower bound of the distance.
struct Tables {
    std::size_t n_bytes;
    const std::uint8_t *rows;    // looked up with the half byte of a code: the query is folded in
    const std::uint8_t *blocks;  // looked up with the half byte of (code xor query)
    const std::uint8_t *query;   // n_bytes
    std::uint16_t limit;         // sums above it are beyond reach; at most 254 for the 8-bit functions
};

struct Scanner {
    const char *name;
    // For each block in `now` (bit b: blocks + b * n_bytes * 64), survivors[b] = rows whose sum is within the limit.
    // `live` are all blocks of the super-block that will be asked for.
    void (*rows8)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
                  std::uint64_t *survivors);
    void (*rows16)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, const Tables &tables,
                   std::uint64_t *survivors);
    // Blocks of a super-block within the limit, by the bits that all rows of a block share.
    std::uint64_t (*blocks8)(const std::uint8_t *bounds, const Tables &tables);
    std::uint64_t (*blocks16)(const std::uint8_t *bounds, const Tables &tables);
    // Blocks whose rows differ in none but the bits of `free` (n_bytes).
    std::uint64_t (*uniform)(const std::uint8_t *bounds, const std::uint8_t *free, std::size_t n_bytes);
};

// The fastest path of this machine, or the one named; nullptr when this machine has no such path.
const Scanner *scanner(const std::string &name = "");
std::vector<std::string> scanner_names();

extern const Scanner scalar_scanner;
#if defined(__x86_64__)
extern const Scanner avx2_scanner;
extern const Scanner avx512_scanner;
#elif defined(__aarch64__)
extern const Scanner neon_scanner;
#endif

}  // namespace bitrank

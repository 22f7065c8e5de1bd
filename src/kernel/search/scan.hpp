// The inner loops of a search: lower bounds of 64 weighted distances at a time, by table look-up on a few bits of each
// byte; one implementation per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// Rows per block and blocks per super-block: a cache line holds one byte of each, a word one bit of each.
constexpr std::size_t lane_count = 64;

// Rows whose exact distances are computed together.
constexpr std::size_t rows_together = 16;

// Queries whose bounds of the same rows are computed together.
constexpr std::size_t queries_per_scan = 4;

// Steps whose look-ups are averaged by the 16-bit functions.
constexpr std::size_t steps_per_group = 4;

// Codes whose words lie side by side where `count` reads them.
constexpr std::size_t codes_per_group = 8;

// Where `sums16` has the sum of a row of a block.
constexpr std::size_t place_of_sum(std::size_t lane) { return lane / 2 + lane % 2 * (lane_count / 2); }

// How a path splits the bytes of a row into indices of tables: four look-ups per step of two bytes (half bytes, the high
// half first), or per step of three (the low six bits of each byte, then the high two of all three, the first byte lowest).
struct Lookups {
    std::size_t n_bytes;
    unsigned index_bits;  // 4 or 6

    static constexpr std::size_t per_step = 4;
    std::size_t step_bytes() const { return index_bits == 4 ? 2 : 3; }
    std::size_t n_steps() const { return (n_bytes + step_bytes() - 1) / step_bytes(); }
    std::size_t n_tables() const { return n_steps() * per_step; }
    std::size_t n_groups() const { return (n_steps() + steps_per_group - 1) / steps_per_group; }
    std::size_t n_entries() const { return std::size_t{1} << index_bits; }
    // The bit of a row, counted from the first, that is bit i of the index of a table; it may be past the last.
    std::size_t bit(std::size_t table, std::size_t i) const {
        if (index_bits == 4) return table * 4 + 3 - i;
        const std::size_t byte = table / 4 * 3;
        return table % 4 < 3 ? (byte + table % 4) * 8 + 7 - i : (byte + i / 2) * 8 + 1 - i % 2;
    }
};

// The tables of one query. Entries are rounded down, so that their sum is a lower bound of the distance.
struct Tables {
    std::size_t n_bytes;
    const std::uint8_t *rows;    // per look-up, indexed by bits of a row; the query is folded in
    const std::uint8_t *blocks;  // 16 entries per half byte of (code xor query), the high half first
    const std::uint8_t *query;   // n_bytes
    std::uint16_t limit;         // the largest sum of a row within the limit; at most 254 for the 8-bit functions
    std::uint16_t block_limit;   // the same for `blocks`
    // For the 16-bit functions: the look-ups of four steps are averaged, pair by pair, each time rounding up; the average
    // is multiplied by the factor of the four steps, at most 127, and added. Rows may all be beyond the limit from step
    // `test_from` on.
    const std::uint32_t *factors;  // in both halves of a word
    std::size_t test_from;
    // Where not 0, sums of 16 bits are the distances themselves: the look-ups of one step, or of the steps of a group, are
    // added, multiplied by their factor, and added up.
    std::size_t exact_steps;
};

// Where the differences of 16 rows hold a bit of the caller: in a byte, or the low byte of a word, as the path likes it.
struct BitPlace {
    std::uint32_t start, mask;  // mask: four times the byte
};

// How one query reads codes from memory.
struct Reading {
    std::size_t bytes_ahead;  // a line is prefetched so many bytes before it is scanned; 0 leaves that to the processor
    bool by_tiles;            // sums of 8 bits: some blocks are scanned together
};

// Who takes the rows of a block within the limit, while the block is in the cache: one word per query, and 64 sums where they
// are exact. It may lower the limits of the tables.
struct Taker {
    void (*take)(void *self, std::size_t block, const std::uint64_t *rows, const std::uint16_t *sums);
    void *self;
};

struct Scanner {
    unsigned index_bits;
    // For every block b in the bit set `now`, at blocks + b * n_bytes * 64, set survivors[b] to the rows whose sum is
    // within the limit. `live` has all blocks of the super-block that are still to be scanned. Returns the blocks with
    // survivors.
    std::uint64_t (*rows8)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, Reading reading,
                           const Tables &tables, std::uint64_t *survivors);
    // The same for four queries: survivors has 64 words per query. Returns the blocks with survivors of any of them.
    std::uint64_t (*rows8_of_four)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live,
                                   const Tables *tables, std::uint64_t *survivors);
    // The same with sums of 16 bits.
    void (*rows16)(const std::uint8_t *blocks, std::uint64_t now, std::uint64_t live, Reading reading,
                   const Tables &tables, Taker taker);
    // The sums themselves, 64 per block of `now`: those of the even rows first.
    void (*sums16)(const std::uint8_t *blocks, std::uint64_t now, Reading reading, const Tables &tables,
                   std::uint16_t *sums);
    // Those of 64 sums that are within the limit.
    std::uint64_t (*within16)(const std::uint16_t *sums, std::uint16_t limit);
    // For the blocks of `now`, fill `prepared` with what all queries look up alike: 64 x n_steps x 64 bytes per super-block.
    void (*prepare)(const std::uint8_t *blocks, std::uint64_t now, std::size_t n_bytes, std::uint8_t *prepared);
    // `ahead` is what comes next from memory: a line is prefetched per step.
    void (*rows16_of_four)(const std::uint8_t *blocks, const std::uint8_t *prepared, const std::uint8_t *ahead,
                           std::uint64_t now, const Tables *tables, Taker taker);
    // Blocks of a super-block within the limit, judged by the bits that all rows of a block share.
    std::uint64_t (*blocks8)(const std::uint8_t *bounds, const Tables &tables);
    std::uint64_t (*blocks16)(const std::uint8_t *bounds, const Tables &tables);
    // Blocks whose rows differ only in the bits set in `free` (n_bytes).
    std::uint64_t (*uniform)(const std::uint8_t *bounds, const std::uint8_t *free, std::size_t n_bytes);
    // Set out[i] to the whole part of weights[i] * scale, at most 255.
    void (*round_down)(const float *weights, std::size_t n, float scale, std::uint8_t *out);
    // Differences (n_bytes, 16) of 16 consecutive lanes of a block from the query, and those of row i, whose bytes are at
    // row, row + stride, ...
    void (*differences)(const std::uint8_t *lanes, const std::uint8_t *query, std::size_t n_bytes, std::uint32_t *out);
    void (*set_row)(const std::uint8_t *row, std::size_t stride, const std::uint8_t *query, std::size_t n_bytes,
                    std::size_t i, std::uint32_t *out);
    // Hamming distances of one query from codes, row by row.
    void (*hamming)(const std::uint8_t *query, const std::uint8_t *codes, std::size_t n_codes, std::size_t n_bytes,
                    std::uint16_t *out);
    // The same from groups of codes as words, the words of the query first: eight counts per group.
    void (*count)(const std::uint64_t *query, const std::uint64_t *groups, std::size_t n_groups, std::size_t n_words,
                  std::uint16_t *out);
    // How many of n numbers, a multiple of 64, are within a limit.
    std::size_t (*count_within)(const std::uint16_t *numbers, std::size_t n, std::uint16_t limit);
    // Exact distances of 16 rows from their differences (n_bytes, 16): weights summed in float32 within each byte and then
    // over the bytes, in the caller's order.
    void (*distances)(const std::uint32_t *differences, const BitPlace *places, const float *weights, std::size_t n_bits,
                      float *out);
    // Tables of a code and its weights (n_bytes, 8): for each half byte, the high one first, the weight of the bits in which
    // its 16 values differ from the code, summed from the first bit on.
    void (*half_byte_tables)(const std::uint8_t *code, const float *weights, std::size_t n_bytes, float *out);
    // Add to out[i] what such tables have for row i of 16: the sum over high halves, plus that over low ones.
    void (*half_byte_sums)(const std::uint8_t *const *rows, std::size_t n_bytes, const float *tables, float *out);
};

extern const Scanner scalar_scanner;
#if defined(__x86_64__)
extern const Scanner avx2_scanner;
extern const Scanner avx512_scanner;
extern const Scanner avx512vbmi_scanner;
#elif defined(__aarch64__)
extern const Scanner neon_scanner;
#endif

}  // namespace bitrank

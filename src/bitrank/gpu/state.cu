// Types that all kernels share; kernels.py has their counterparts.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Distances are kept as the bits of their float32, which order like the numbers: none is negative.
#define INFINITE 0x7f800000u

// A sum that keeps subnormal numbers, which CuPy tells the compiler to flush to zero.
__device__ inline float add(float a, float b) {
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
}

struct Chunk {
    const u8 *codes;
    const i64 *ids;   // or null: first_id + row
    const u32 *live;  // one bit per row, or null: all
    i64 n, first_id, first_tile;
};

struct State {
    const Chunk *chunks;
    const uint4 *fragments;         // signed weights in the order of the scan's operand
    const u8 *query_codes;          // (n_queries, n_bytes)
    const float *weights;           // (n_queries, n_bits)
    const float *second_weights;    // the same, or null: for distances that replace the first among the best
    const double *scales;           // integer weight per unit of weight
    const int *constants;           // integer weight of the bits that are set in the query
    float *tables, *second_tables;  // (n_queries, n_bytes, 256): distance by value of a code's byte
    int *offsets;                   // (n_queries, 2): where sums start, for both columns of a lane
    u32 *limits;                    // a hit is at most this far,
    i64 *limit_ids;                 // and at this distance its id is at most this
    u32 *counts;                    // hits of the phase, also those beyond the capacity
    u32 *hits;                      // (n_queries, capacity)
    i64 *hit_ids;
    u32 *hit_seconds;
    u32 *top;                       // (2, n_queries, k): best rows so far; `keep_best` reads one half, fills the other
    i64 *top_ids;
    u32 *top_seconds;
    int *n_top;
    int *overflow;                  // whether a phase had more hits than the capacity
    i64 *out_ids;                   // (n_queries, n_out)
    u32 *out;
    int n_chunks, n_queries, n_bits, n_bytes, k, n_out;
    u32 capacity;
};

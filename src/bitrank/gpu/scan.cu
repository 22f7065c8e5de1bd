// Scans of packed codes: the integer bound on tensor cores (many queries) or by dp4a (one query), and without a bound.
// A code within the bound is scored in float32 in the order of the reference and kept if it is within the limit.
//
// Compiled per length of codes and number of queries with these macros: N_BYTES (of a code), QUERY_GROUPS (of 16
// queries), TILE (codes that a warp scans in one go), DP4A (1 for the kernel of one query). SCALE,
// MASK and the order of bits are those of quantise.py, struct State is that of kernels.py.

#define N_UNITS ((N_BYTES + 7) / 8)  // of 64 bits, 16 per lane: two steps of the matrix operation
#define N_STEPS (2 * N_UNITS)
#define MASK 0x08080808u  // an expanded bit is 8
#define SCALE 8

#if DP4A
#define AT_ONCE (N_BYTES < 16 ? 8 : 64 / N_BYTES)  // codes per lane
#define WINDOW (32 * AT_ONCE)
#else
// Signed weights stay in registers where they fit. Groups of eight codes that are summed together, and loaded together:
// what was fastest on an H200 at 64 to 1024 bits.
#define FRAGMENTS_SHARED (4 * QUERY_GROUPS * N_STEPS > (QUERY_GROUPS == 1 ? 16 : 32))
#define TOGETHER (FRAGMENTS_SHARED ? 4 : 4 / QUERY_GROUPS)
#define LOADED (FRAGMENTS_SHARED ? 4 : N_UNITS == 1 ? 16 : 8)
#define WINDOW (8 * LOADED)
#define MIN_BLOCKS (QUERY_GROUPS == 1 ? 3 : 2)  // per multiprocessor, by the registers they need
#endif

struct Tile {
    const u8 *codes;
    const i64 *ids;  // or null: first_id + row
    const u32 *live;  // one bit per row, or null
    i64 first_id;
    int n;
    bool tiny;  // its chunk has fewer rows than a window
};

// The i-th tile of a phase: every `stride`-th tile of all chunks, without every `ratio`-th of those unless ratio is 0.
__device__ inline i64 tile_number(u32 i, u32 stride, u32 ratio) {
    return (i64)stride * (ratio ? i + i / (ratio - 1) + 1 : i);
}

__device__ inline Tile tile_at(const State &state, i64 number) {
    int low = 0, high = state.n_chunks - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (state.chunks[middle].first_tile <= number) low = middle; else high = middle - 1;
    }
    const Chunk &chunk = state.chunks[low];
    const i64 row = (number - chunk.first_tile) * TILE;
    Tile tile;
    tile.codes = chunk.codes + row * N_BYTES;
    tile.ids = chunk.ids ? chunk.ids + row : nullptr;
    tile.live = chunk.live ? chunk.live + row / 32 : nullptr;
    tile.first_id = chunk.first_id + row;
    tile.n = chunk.n - row < TILE ? (int)(chunk.n - row) : TILE;
    tile.tiny = chunk.n < WINDOW;
    return tile;
}

__device__ inline u32 distance(const float *tables, const u8 *code, u32 limit) {
    float sum = 0;
#pragma unroll 8
    for (int byte = 0; byte < N_BYTES; ++byte) {
        if (byte && byte % 16 == 0 && __float_as_uint(sum) > limit) break;  // sums only grow
        sum = add(sum, tables[byte * 256 + code[byte]]);
    }
    return __float_as_uint(sum);
}

// Score one row of a tile exactly and keep it if it is live and within the query's limit.
__device__ __noinline__ void consider(const State &state, i64 number, int query, int row) {
    const Tile tile = tile_at(state, number);
    if (row >= tile.n || (tile.live && !(tile.live[row / 32] >> row % 32 & 1))) return;
    const u8 *code = tile.codes + (i64)row * N_BYTES;
    const u32 limit = state.limits[query];
    const u32 sum = distance(state.tables + (i64)query * N_BYTES * 256, code, limit);
    if (sum > limit) return;
    const i64 id = tile.ids ? tile.ids[row] : tile.first_id + row;
    if (sum == limit && id > state.limit_ids[query]) return;
    const u32 active = __activemask();
    const u32 same = __match_any_sync(active, query);
    const int lane = threadIdx.x % 32, leader = __ffs(same) - 1;
    u32 place = 0;
    if (lane == leader) place = atomicAdd(state.counts + query, (u32)__popc(same));
    place = __shfl_sync(same, place, leader) + __popc(same & ((1u << lane) - 1));
    if (place >= state.capacity) return;
    const i64 slot = (i64)query * state.capacity + place;
    state.hits[slot] = sum;
    state.hit_ids[slot] = id;
    if (state.second_tables)
        state.hit_seconds[slot] = distance(state.second_tables + (i64)query * N_BYTES * 256, code, INFINITE);
}

// Every row of a tile against every query, by one warp.
__device__ __noinline__ void consider_all(const State &state, i64 number, int n) {
    for (int i = threadIdx.x % 32; i < n * state.n_queries; i += 32) consider(state, number, i / n, i % n);
}

// Every row of a phase against every query, without a bound.
extern "C" __global__ void __launch_bounds__(256) score(const __grid_constant__ State state, u32 n_tiles, u32 stride, u32 ratio) {
    const u32 n_rows = n_tiles * TILE;
    const u64 n = (u64)n_rows * state.n_queries;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        const u32 row = (u32)(i % n_rows);
        consider(state, tile_number(row / TILE, stride, ratio), (int)(i / n_rows), row % TILE);
    }
}

#if DP4A

#define N_WORDS (N_BYTES / 4)

__device__ inline int add_products(u32 bits, int weights, int sum) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(bits), "r"(weights));
    return sum;
}

__device__ inline void load_code(const u8 *code, u32 *words) {
#if N_BYTES == 4
    words[0] = __ldcs((const u32 *)code);
#elif N_BYTES == 8
    const uint2 pair = __ldcs((const uint2 *)code);
    words[0] = pair.x, words[1] = pair.y;
#else
#pragma unroll
    for (int v = 0; v < N_BYTES / 16; ++v) {
        const uint4 four = __ldcs((const uint4 *)code + v);
        words[4 * v] = four.x, words[4 * v + 1] = four.y, words[4 * v + 2] = four.z, words[4 * v + 3] = four.w;
    }
#endif
}

// One query: a lane takes whole codes. Bit j of a byte counts 2^j times until the sum has been halved j times.
extern "C" __global__ void __launch_bounds__(256) scan(const __grid_constant__ State state, u32 n_tiles, u32 stride, u32 ratio) {
    int weights[N_WORDS][8];
#pragma unroll
    for (int word = 0; word < N_WORDS; ++word)
#pragma unroll
        for (int j = 0; j < 8; ++j) weights[word][j] = ((const int *)state.fragments)[word * 8 + j];
    const int offset = state.offsets[0] / SCALE;
    const u32 n_warps = gridDim.x * (blockDim.x / 32);
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n_tiles; i += n_warps) {
        const i64 number = tile_number(i, stride, ratio);
        const Tile tile = tile_at(state, number);
        if (tile.tiny) consider_all(state, number, tile.n);
        for (int first = 0; first < tile.n && !tile.tiny; first += WINDOW) {
            // The last window ends with the tile and begins among rows that were scanned before.
            const int row = min(first, tile.n - WINDOW) + (int)threadIdx.x % 32;
            u32 words[AT_ONCE][N_WORDS];
#pragma unroll
            for (int a = 0; a < AT_ONCE; ++a) load_code(tile.codes + row * N_BYTES + 32 * a * N_BYTES, words[a]);
            int sums[AT_ONCE], any = 0;
#pragma unroll
            for (int a = 0; a < AT_ONCE; ++a) {
                int sum = 0;
#pragma unroll
                for (int j = 7; j >= 0; --j) {
                    sum >>= 1;
#pragma unroll
                    for (int word = 0; word < N_WORDS; ++word)
                        sum = add_products(words[a][word] & 0x01010101u << j, weights[word][j], sum);
                }
                sums[a] = sum + offset;
                any |= sums[a];
            }
            if (any >= 0) continue;
            u32 hits = 0;
#pragma unroll
            for (int a = 0; a < AT_ONCE; ++a) hits |= (u32)(sums[a] < 0) << a;
            for (; hits; hits &= hits - 1) {
                const int place = row + 32 * (__ffs(hits) - 1);
                if (place >= first) consider(state, number, 0, place);
            }
        }
    }
}

#else

#define LOAD_UNITS (N_BYTES % 8 ? 1 : N_UNITS % 8 == 0 ? 8 : N_UNITS % 4 == 0 ? 4 : N_UNITS % 2 == 0 ? 2 : 1)
#define LOAD_WORDS (LOAD_UNITS > 1 ? LOAD_UNITS / 2 : 1)
#define N_LOADS (N_UNITS / LOAD_UNITS)
constexpr int unrolled_loads = FRAGMENTS_SHARED ? 1 : N_LOADS;

// 16 * LOAD_UNITS bits of a lane's part of a code.
__device__ inline void load_part(const u8 *code, int lane_part, int load, u32 *words) {
    const int start = 2 * N_UNITS * lane_part + 2 * LOAD_UNITS * load;
#if N_BYTES % 8
    words[0] = (start < N_BYTES ? __ldg(code + start) : 0u) | (start + 1 < N_BYTES ? __ldg(code + start + 1) << 8 : 0u);
#elif LOAD_UNITS == 1
    words[0] = __ldg((const unsigned short *)(code + start));
#elif LOAD_UNITS == 2
    words[0] = __ldg((const u32 *)(code + start));
#elif LOAD_UNITS == 4
    const uint2 two = __ldg((const uint2 *)(code + start));
    words[0] = two.x, words[1] = two.y;
#else
    const uint4 four = __ldg((const uint4 *)(code + start));
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
#endif
}

// Register j of a word of 32 bits, or of 16 (z = x | x << 12): bytes that are 8 where a bit is set, and else 0.
__device__ inline u32 expand(u32 word, int j) {
    return (j < 3 ? word << (3 - j) : word >> (j - 3)) & MASK;
}

__device__ inline void multiply(int (&sums)[4], const uint4 &weights, u32 low, u32 high) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(low), "r"(high));
}

__device__ inline bool none_live(const Tile &tile, int first) {
    if (!tile.live) return false;
    const int stop = min(first + WINDOW, tile.n);
    for (int row = first; row < stop; row += 32)
        if (tile.live[row / 32]) return false;
    return true;
}

typedef int Sums[TOGETHER][QUERY_GROUPS][4];

// Add one load of TOGETHER groups of codes to their sums; `fragment` and `word` say where operands are.
template <typename Fragment, typename Word>
__device__ __forceinline__ void add_load(Sums &sums, int load, Fragment fragment, Word word) {
#pragma unroll
    for (int part = 0; part < LOAD_WORDS; ++part)
#pragma unroll
        for (int pair = 0; pair < (LOAD_UNITS > 1 ? 4 : 2); ++pair) {
            uint4 weights[QUERY_GROUPS];
#pragma unroll
            for (int group = 0; group < QUERY_GROUPS; ++group)
                weights[group] = fragment(group, 2 * LOAD_UNITS * load + 4 * part + pair);
#pragma unroll
            for (int c = 0; c < TOGETHER; ++c) {
                const u32 x = word(c, part), z = LOAD_UNITS > 1 ? x : x | x << 12;
                const u32 low = expand(z, 2 * pair), high = expand(z, 2 * pair + 1);
#pragma unroll
                for (int group = 0; group < QUERY_GROUPS; ++group) multiply(sums[c][group], weights[group], low, high);
            }
        }
}

// Negative sums are hits, if they are of row `first` or later. Sum j % 4 of a lane is of column 2 * part + j % 2, and of
// its second query from j % 4 = 2 on.
__device__ __forceinline__ void consider_hits(const State &state, i64 number, const Sums &sums, int row, int first) {
    const int lane = threadIdx.x % 32, n = TOGETHER * QUERY_GROUPS * 4;
    int any = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) any |= sums[j / (4 * QUERY_GROUPS)][j / 4 % QUERY_GROUPS][j % 4];
    if (any >= 0) return;
    u64 hits = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) hits |= (u64)(sums[j / (4 * QUERY_GROUPS)][j / 4 % QUERY_GROUPS][j % 4] < 0) << j;
    for (; hits; hits &= hits - 1) {
        const int j = __ffsll(hits) - 1, query = 16 * (j / 4 % QUERY_GROUPS) + j % 4 / 2 * 8 + lane / 4;
        const int place = row + 8 * (j / (4 * QUERY_GROUPS)) + 2 * (lane % 4) + j % 2;
        if (place >= first) consider(state, number, query, place);
    }
}

// Queries are rows of the matrix operation, eight codes its columns. Sums start at minus the query's limit, such that a
// hit is a negative sum.
extern "C" __global__ void __launch_bounds__(256, MIN_BLOCKS)
scan(const __grid_constant__ State state, u32 n_tiles, u32 stride, u32 ratio) {
    const int lane = threadIdx.x % 32, column = lane / 4, lane_part = lane % 4;
#if FRAGMENTS_SHARED
    extern __shared__ uint4 fragments[];
    for (int i = threadIdx.x; i < QUERY_GROUPS * N_STEPS * 32; i += blockDim.x) fragments[i] = state.fragments[i];
    __syncthreads();
    const auto fragment = [&](int group, int step) { return fragments[(group * N_STEPS + step) * 32 + lane]; };
#else
    uint4 fragments[QUERY_GROUPS * N_STEPS];
#pragma unroll
    for (int i = 0; i < QUERY_GROUPS * N_STEPS; ++i) fragments[i] = state.fragments[i * 32 + lane];
    const auto fragment = [&](int group, int step) { return fragments[group * N_STEPS + step]; };
#endif
    int offsets[4 * QUERY_GROUPS];
#pragma unroll
    for (int j = 0; j < 4 * QUERY_GROUPS; ++j)
        offsets[j] = state.offsets[2 * (j / 4 * 16 + j % 4 / 2 * 8 + column) + j % 2];
    const u32 n_warps = gridDim.x * (blockDim.x / 32);
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n_tiles; i += n_warps) {
        const i64 number = tile_number(i, stride, ratio);
        const Tile tile = tile_at(state, number);
        if (tile.tiny) consider_all(state, number, tile.n);
        for (int first = 0; first < tile.n && !tile.tiny; first += WINDOW) {
            if (none_live(tile, first)) continue;
            // The last window ends with the tile and begins among rows that were scanned before.
            const int start = min(first, tile.n - WINDOW);
            const u8 *codes = tile.codes + (start + column) * N_BYTES;
            u32 words[LOADED][FRAGMENTS_SHARED ? 1 : N_LOADS][LOAD_WORDS];
#pragma unroll
            for (int j = 0; j < (FRAGMENTS_SHARED ? 0 : LOADED * N_LOADS); ++j)
                load_part(codes + j / N_LOADS * 8 * N_BYTES, lane_part, j % N_LOADS, words[j / N_LOADS][j % N_LOADS]);
#pragma unroll
            for (int l = 0; l < LOADED; l += TOGETHER) {
                Sums sums;
#pragma unroll
                for (int j = 0; j < TOGETHER * QUERY_GROUPS * 4; ++j)
                    sums[j / (4 * QUERY_GROUPS)][j / 4 % QUERY_GROUPS][j % 4] = offsets[j % (4 * QUERY_GROUPS)];
#pragma unroll(unrolled_loads)
                for (int load = 0; load < N_LOADS; ++load) {
                    const int place = FRAGMENTS_SHARED ? 0 : load;
#pragma unroll
                    for (int c = 0; c < (FRAGMENTS_SHARED ? TOGETHER : 0); ++c)
                        load_part(codes + 8 * (l + c) * N_BYTES, lane_part, load, words[l + c][0]);
                    add_load(sums, load, fragment, [&](int c, int part) { return words[l + c][place][part]; });
                }
                consider_hits(state, number, sums, start + 8 * l, first);
            }
        }
    }
}

#endif

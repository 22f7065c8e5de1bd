// What comes before and after a scan: tables of weights, the k best of the hits and the new limit, their order, and row
// masks from lists of ids.

// One block per query and byte, one thread per value: bits are added from the first of the byte on.
extern "C" __global__ void fill_tables(const __grid_constant__ State state, int second) {
    const int query = blockIdx.x / state.n_bytes, byte = blockIdx.x % state.n_bytes, value = threadIdx.x;
    const float *weights = (second ? state.second_weights : state.weights) + (i64)query * state.n_bits;
    const int difference = value ^ state.query_codes[blockIdx.x];
    float sum = 0;
    for (int bit = 0; bit < 8 && 8 * byte + bit < state.n_bits; ++bit)
        if (difference >> (7 - bit) & 1) sum = add(sum, weights[8 * byte + bit]);
    (second ? state.second_tables : state.tables)[(i64)blockIdx.x * 256 + value] = sum;
}

// Where integer sums start such that every distance up to the limit gives a negative sum: as `offsets` in quantise.py.
__device__ inline int offset_for(const State &state, int query, u32 limit) {
    if (limit == INFINITE) return -(1 << 30);
    double distance;
    asm("cvt.f64.f32 %0, %1;" : "=d"(distance) : "f"(__uint_as_float(limit)));  // of subnormal numbers too
    const double slack = 1 + 1e-6 * (state.n_bytes + 16);
    const double scaled_limit = floor(distance * state.scales[query] * slack);
    return 8 * (state.constants[query] - 1 - (scaled_limit < (1 << 26) ? (int)scaled_limit : 1 << 26));
}

struct Entries {
    const u32 *top, *hits;
    const i64 *top_ids, *hit_ids;
    int n_top;

    __device__ u32 key(int i) const { return i < n_top ? top[i] : hits[i - n_top]; }
    __device__ i64 id(int i) const { return i < n_top ? top_ids[i] : hit_ids[i - n_top]; }
};

// The bucket in which the `need`-th entry lies; one warp, eight buckets per lane.
__device__ inline void find_bucket(const u32 *histogram, u32 &need, u32 &bucket, u32 &in_bucket) {
    const int lane = threadIdx.x;
    u32 sum = 0;
    for (int b = 0; b < 8; ++b) sum += histogram[8 * lane + b];
    u32 through = sum;
    for (int step = 1; step < 32; step *= 2) {
        const u32 before = __shfl_up_sync(~0u, through, step);
        if (lane >= step) through += before;
    }
    u32 before = through - sum;
    const u32 wanted = need;
    __syncwarp();
    if (before < wanted && wanted <= through)
        for (int b = 0; b < 8; ++b) {
            const u32 count = histogram[8 * lane + b];
            if (before + count >= wanted) {
                need = wanted - before, bucket = 8 * lane + b, in_bucket = count;
                break;
            }
            before += count;
        }
}

// The k best of the best so far and the phase's hits, by distance and then by id, in no order; they set the new limit.
// Radix selection on 32 bits of distance and 64 of id; one block per query. More hits than the capacity only lower the
// limit: the host repeats the search with it.
extern "C" __global__ void __launch_bounds__(1024) keep_best(const __grid_constant__ State state, int half) {
    __shared__ u32 histogram[256], need, bucket, in_bucket, n_kept;
    __shared__ u64 largest_id;
    const int query = blockIdx.x;
    const u32 count = state.counts[query];
    const bool overflow = count > state.capacity;
    const int n_top = state.n_top[query], n = n_top + (int)min(count, state.capacity), k = state.k;
    const i64 source = ((i64)half * state.n_queries + query) * k;
    const i64 target = ((i64)(1 - half) * state.n_queries + query) * k;
    const i64 hits = (i64)query * state.capacity;
    const Entries entries{state.top + source, state.hits + hits, state.top_ids + source, state.hit_ids + hits, n_top};
    u32 key = ~0u;
    u64 id = ~0ull;
    if (n >= k) {
        key = 0, id = 0;
        if (threadIdx.x == 0) need = k;
        for (int round = 0; round < 12; ++round) {
            const int shift = round < 4 ? 24 - 8 * round : 56 - 8 * (round - 4);
            for (int i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                const u64 entry_key = entries.key(i);
                if (round < 4) {
                    if (entry_key >> (shift + 8) == (u64)key >> (shift + 8))
                        atomicAdd(histogram + (entry_key >> shift & 255), 1);
                } else if (entry_key == key) {
                    const u64 entry_id = entries.id(i);
                    if (shift == 56 || entry_id >> (shift + 8) == id >> (shift + 8))
                        atomicAdd(histogram + (entry_id >> shift & 255), 1);
                }
            }
            __syncthreads();
            if (threadIdx.x < 32) find_bucket(histogram, need, bucket, in_bucket);
            __syncthreads();
            if (round < 4) key |= bucket << shift; else id |= (u64)bucket << shift;
            const bool whole = in_bucket == need;  // every entry of the bucket is among the k best
            if (round == 3 && whole) id = ~0ull;
            if (round > 3 && whole) id |= (1ull << shift) - 1;
            __syncthreads();
            if (round >= 3 && whole) break;
        }
    }
    if (threadIdx.x == 0) n_kept = 0, largest_id = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < (overflow ? n_top : n); i += blockDim.x) {
        const u32 entry_key = entries.key(i);
        const i64 entry_id = entries.id(i);
        const bool within = entry_key < key || (entry_key == key && (u64)entry_id <= id);
        if (!within && !overflow) continue;
        const u32 place = atomicAdd(&n_kept, 1);
        state.top[target + place] = entry_key;
        state.top_ids[target + place] = entry_id;
        if (state.second_tables)
            state.top_seconds[target + place] =
                i < n_top ? state.top_seconds[source + i] : state.hit_seconds[hits + i - n_top];
    }
    if (n >= k)
        for (int i = threadIdx.x; i < n; i += blockDim.x)
            if (entries.key(i) == key && (u64)entries.id(i) <= id) atomicMax(&largest_id, (u64)entries.id(i));
    __syncthreads();
    if (threadIdx.x) return;
    state.n_top[query] = n_kept;
    state.counts[query] = 0;
    if (overflow) *state.overflow = 1;
    if (n >= k && (key < state.limits[query] ||
                   (key == state.limits[query] && (i64)largest_id < state.limit_ids[query]))) {
        state.limits[query] = key;
        state.limit_ids[query] = (i64)largest_id;
        if (state.offsets) state.offsets[2 * query] = state.offsets[2 * query + 1] = offset_for(state, query, key);
    }
}

// The best rows in order, padded with -1 and infinity: an entry's place is the number of entries before it. As many
// blocks per query as hold its entries.
extern "C" __global__ void sort_best(const __grid_constant__ State state, int half) {
    const int query = blockIdx.x % state.n_queries, i = blockIdx.x / state.n_queries * blockDim.x + threadIdx.x;
    const int n = state.n_top[query], n_out = state.n_out;
    const i64 start = ((i64)half * state.n_queries + query) * state.k;
    const u32 *keys = (state.second_tables ? state.top_seconds : state.top) + start;
    const i64 *ids = state.top_ids + start;
    int place = i;
    if (i < n) {
        const u32 key = keys[i];
        const i64 id = ids[i];
        place = 0;
        for (int j = 0; j < n; ++j) place += keys[j] < key || (keys[j] == key && ids[j] < id);
    }
    if (place >= n_out) return;
    state.out[(i64)query * n_out + place] = i < n ? keys[i] : INFINITE;
    state.out_ids[(i64)query * n_out + place] = i < n ? ids[i] : -1;
}

// Bits of the live rows whose ids are in an ascending list, and their number.
extern "C" __global__ void mark(const Chunk chunk, const i64 *list, i64 n_list, u32 *words, u64 *count) {
    const i64 stop = (chunk.n + 31) / 32 * 32;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < stop; row += (i64)gridDim.x * blockDim.x) {
        bool found = false;
        if (row < chunk.n && (!chunk.live || chunk.live[row / 32] >> row % 32 & 1)) {
            const i64 id = chunk.ids ? chunk.ids[row] : chunk.first_id + row;
            i64 low = 0, high = n_list;
            while (low < high) {
                const i64 middle = (low + high) / 2;
                if (list[middle] < id) low = middle + 1; else high = middle;
            }
            found = low < n_list && list[low] == id;
        }
        const u32 word = __ballot_sync(~0u, found);
        if (row % 32 == 0) {
            words[row / 32] = word;
            if (word) atomicAdd(count, (u64)__popc(word));
        }
    }
}

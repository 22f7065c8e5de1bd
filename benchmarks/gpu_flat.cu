// Plain Hamming search in the structure of FAISS's GpuIndexBinaryFlat: a warp per query, eight to a block, which stages 32
// codes at a time in shared memory; every lane compares one of them, and the warp keeps the k nearest. N_WORDS of 32 bits
// per code, K a multiple of 32.
extern "C" __global__ void __launch_bounds__(256)
flat(const unsigned *codes, long long n, const unsigned *queries, int n_queries, int *out, long long *out_ids) {
    __shared__ unsigned tile[32][N_WORDS + 1];
    __shared__ int distances[8][K];
    __shared__ long long ids[8][K];
    const int lane = threadIdx.x, warp = threadIdx.y, query = blockIdx.x * 8 + warp;
    unsigned mine[N_WORDS];
    for (int w = 0; w < N_WORDS; ++w) mine[w] = query < n_queries ? queries[query * N_WORDS + w] : 0;
    for (int i = lane; i < K; i += 32) distances[warp][i] = 1 << 30, ids[warp][i] = -1;
    int worst = 1 << 30, worst_place = 0;
    for (long long first = 0; first < n; first += 32) {
        for (int i = warp * 32 + lane; i < 32 * N_WORDS; i += 256)
            tile[i / N_WORDS][i % N_WORDS] = first + i / N_WORDS < n ? codes[first * N_WORDS + i] : 0;
        __syncthreads();
        int distance = 0;
        for (int w = 0; w < N_WORDS; ++w) distance += __popc(mine[w] ^ tile[lane][w]);
        if (first + lane >= n) distance = 1 << 30;
        for (unsigned better = __ballot_sync(~0u, distance < worst); better; better &= better - 1) {
            const int source = __ffs(better) - 1, value = __shfl_sync(~0u, distance, source);
            if (value >= worst) continue;
            if (lane == 0) distances[warp][worst_place] = value, ids[warp][worst_place] = first + source;
            __syncwarp();
            int largest = -1, place = 0;
            for (int i = lane; i < K; i += 32)
                if (distances[warp][i] > largest) largest = distances[warp][i], place = i;
            for (int step = 16; step; step /= 2) {
                const int other = __shfl_xor_sync(~0u, largest, step), other_place = __shfl_xor_sync(~0u, place, step);
                if (other > largest || (other == largest && other_place < place)) largest = other, place = other_place;
            }
            worst = largest, worst_place = place;
        }
        __syncthreads();
    }
    if (query < n_queries)
        for (int i = lane; i < K; i += 32) out[query * K + i] = distances[warp][i], out_ids[query * K + i] = ids[warp][i];
}

// The path of x86-64 machines since 2019, which count the bits of eight words with one instruction.
#include <immintrin.h>

#include "gram_loops.hpp"

namespace bitrank {
namespace {

// Eight products at once, so that every vector read serves at least two of them.
struct VectorProducts {
    static void of(const Columns &columns, const std::size_t *left, const std::size_t *right, std::int64_t *out) {
        __m512i n_common[8] = {}, n_opposite[8] = {};
        for (std::size_t word = 0; word < columns.n_words; word += 8) {
            __m512i right_nonzero[2], right_positive[2];
            for (std::size_t r = 0; r < 2; ++r) {
                right_nonzero[r] = _mm512_loadu_si512(columns.nonzero + right[r] * columns.n_words + word);
                right_positive[r] = _mm512_loadu_si512(columns.positive + right[r] * columns.n_words + word);
            }
            for (std::size_t l = 0; l < 4; ++l) {
                const __m512i left_nonzero = _mm512_loadu_si512(columns.nonzero + left[l] * columns.n_words + word);
                const __m512i left_flipped = _mm512_loadu_si512(columns.flipped + left[l] * columns.n_words + word);
                for (std::size_t r = 0; r < 2; ++r) {
                    const __m512i common = _mm512_and_si512(left_nonzero, right_nonzero[r]);
                    // common & (left_flipped ^ right_positive)
                    const __m512i opposite = _mm512_ternarylogic_epi64(common, left_flipped, right_positive[r], 0x60);
                    n_common[2 * l + r] = _mm512_add_epi64(n_common[2 * l + r], _mm512_popcnt_epi64(common));
                    n_opposite[2 * l + r] = _mm512_add_epi64(n_opposite[2 * l + r], _mm512_popcnt_epi64(opposite));
                }
            }
        }
        for (std::size_t four = 0; four < 8; four += 4) {
            __m512i sums[4];
            for (std::size_t i = 0; i < 4; ++i)
                sums[i] = _mm512_sub_epi64(n_common[four + i],
                                           _mm512_add_epi64(n_opposite[four + i], n_opposite[four + i]));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + four), sum_lanes(sums));
        }
    }

    // The sum over the eight lanes of each of four vectors: add neighbours, then quarters, then halves.
    static __m256i sum_lanes(const __m512i *sums) {
        const __m512i first = _mm512_add_epi64(_mm512_unpacklo_epi64(sums[0], sums[1]),
                                               _mm512_unpackhi_epi64(sums[0], sums[1]));
        const __m512i second = _mm512_add_epi64(_mm512_unpacklo_epi64(sums[2], sums[3]),
                                                _mm512_unpackhi_epi64(sums[2], sums[3]));
        const __m512i quarters = _mm512_add_epi64(
            _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), second),
            _mm512_permutex2var_epi64(first, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), second));
        return _mm256_add_epi64(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
    }
};

}  // namespace

const GramLoops avx512_gram{transpose, add_products<VectorProducts>};

}  // namespace bitrank

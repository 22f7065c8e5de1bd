// The path of 64-bit ARM machines, all of which have NEON.
#include <arm_neon.h>

#include "scan_loops.hpp"

namespace bitrank {
namespace {

// One bit per lane, like _mm_movemask_epi8 on x86; lanes are all ones or all zeros.
inline std::uint64_t mask_of(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d) {
    const uint8x16_t bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t ab = vpaddq_u8(vandq_u8(a, bits), vandq_u8(b, bits));
    const uint8x16_t cd = vpaddq_u8(vandq_u8(c, bits), vandq_u8(d, bits));
    const uint8x16_t abcd = vpaddq_u8(ab, cd);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(abcd, abcd)), 0);
}

struct Line {
    uint8x16_t v[4];

    static constexpr unsigned index_bits = 4;
    static constexpr std::size_t blocks_of_one = 1, blocks_of_four = 1;
    static void expand(const Line *lines, Line *indices) { expand_half_bytes(lines, indices); }
    template <typename Work>
    static Line each(Work work) {
        return {{work(0), work(1), work(2), work(3)}};
    }
    static Line load(const std::uint8_t *p) {
        return each([&](int i) { return vld1q_u8(p + 16 * i); });
    }
    static Line same(std::uint8_t value) {
        return each([&](int) { return vdupq_n_u8(value); });
    }
    static uint8x16_t table(const std::uint8_t *p) { return vld1q_u8(p); }
    static Line and_(const Line &x, const Line &y) {
        return each([&](int i) { return vandq_u8(x.v[i], y.v[i]); });
    }
    static Line or_(const Line &x, const Line &y) {
        return each([&](int i) { return vorrq_u8(x.v[i], y.v[i]); });
    }
    static Line xor_(const Line &x, const Line &y) {
        return each([&](int i) { return veorq_u8(x.v[i], y.v[i]); });
    }
    static Line low(const Line &x) { return and_(x, same(15)); }
    static Line high(const Line &x) {
        return each([&](int i) { return vshrq_n_u8(x.v[i], 4); });
    }
    static Line look_up(uint8x16_t table, const Line &x) {
        return each([&](int i) { return vqtbl1q_u8(table, x.v[i]); });
    }
    static Line add(const Line &x, const Line &y) {
        return each([&](int i) { return vqaddq_u8(x.v[i], y.v[i]); });
    }
    static Line average(const Line &x, const Line &y) {
        return each([&](int i) { return vrhaddq_u8(x.v[i], y.v[i]); });
    }
    static std::uint64_t below_top(const Line &x) {
        const Line in = each([&](int i) { return vmvnq_u8(vceqq_u8(x.v[i], vdupq_n_u8(255))); });
        return mask_of(in.v[0], in.v[1], in.v[2], in.v[3]);
    }
    static Line look_up16(const std::uint8_t *p, const Line &x) { return look_up(table(p), x); }
};

struct Sums {
    uint16x8_t v[8];

    static Sums zero() {
        Sums out;
        for (auto &lanes : out.v) lanes = vdupq_n_u16(0);
        return out;
    }
    void add(const Line &x, std::uint32_t factor) {
        const uint8x16_t factors = vdupq_n_u8(static_cast<std::uint8_t>(factor));
        for (int i = 0; i < 4; ++i) {
            v[2 * i] = vmlal_u8(v[2 * i], vget_low_u8(x.v[i]), vget_low_u8(factors));
            v[2 * i + 1] = vmlal_high_u8(v[2 * i + 1], x.v[i], factors);
        }
    }
    void store(std::uint16_t *p) const {
        for (int i = 0; i < 4; ++i) {
            vst1q_u16(p + 8 * i, vuzp1q_u16(v[2 * i], v[2 * i + 1]));
            vst1q_u16(p + lane_count / 2 + 8 * i, vuzp2q_u16(v[2 * i], v[2 * i + 1]));
        }
    }
    static Sums load(const std::uint16_t *p) {
        Sums out;
        for (int i = 0; i < 4; ++i) {
            const uint16x8_t even = vld1q_u16(p + 8 * i), odd = vld1q_u16(p + lane_count / 2 + 8 * i);
            out.v[2 * i] = vzip1q_u16(even, odd);
            out.v[2 * i + 1] = vzip2q_u16(even, odd);
        }
        return out;
    }
    std::uint64_t within(std::uint16_t limit) const {
        const uint16x8_t top = vdupq_n_u16(limit);
        const Line in = Line::each([&](int i) {
            return vcombine_u8(vmovn_u16(vcleq_u16(v[2 * i], top)), vmovn_u16(vcleq_u16(v[2 * i + 1], top)));
        });
        return mask_of(in.v[0], in.v[1], in.v[2], in.v[3]);
    }
};

struct Floats {
    using Difference = std::uint32_t;
    float32x4_t v[4];

    static Floats zero() { return {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}}; }
    void add_where(const std::uint32_t *differences, std::uint32_t mask, float weight) {
        const uint32x4_t bits = vreinterpretq_u32_f32(vdupq_n_f32(weight));
        for (int i = 0; i < 4; ++i) {
            const uint32x4_t where = vtstq_u32(vld1q_u32(differences + 4 * i), vdupq_n_u32(mask));
            v[i] = vaddq_f32(v[i], vreinterpretq_f32_u32(vandq_u32(where, bits)));
        }
    }
    void add(const Floats &x) {
        for (int i = 0; i < 4; ++i) v[i] = vaddq_f32(v[i], x.v[i]);
    }
    static void add_entries(Floats &high, Floats &low, const float *tables, const std::uint8_t *bytes) {
        float entries[2][16];
        for (int i = 0; i < 16; ++i) {
            entries[0][i] = tables[bytes[i] >> 4];
            entries[1][i] = tables[16 + (bytes[i] & 15)];
        }
        for (int i = 0; i < 4; ++i) {
            high.v[i] = vaddq_f32(high.v[i], vld1q_f32(entries[0] + 4 * i));
            low.v[i] = vaddq_f32(low.v[i], vld1q_f32(entries[1] + 4 * i));
        }
    }
    void store(float *p) const {
        for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v[i]);
    }
    static void differences(const std::uint8_t *line, std::uint8_t query, std::uint32_t *out) {
        const uint8x16_t bytes = veorq_u8(vld1q_u8(line), vdupq_n_u8(query));
        const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
        vst1q_u32(out, vmovl_u16(vget_low_u16(low)));
        vst1q_u32(out + 4, vmovl_high_u16(low));
        vst1q_u32(out + 8, vmovl_u16(vget_low_u16(high)));
        vst1q_u32(out + 12, vmovl_high_u16(high));
    }
};

}  // namespace

const Scanner neon_scanner = scanner_of<Line, Sums, Floats>();

}  // namespace bitrank

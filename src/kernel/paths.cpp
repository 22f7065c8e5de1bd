#include "paths.hpp"

namespace bitrank {
namespace {

std::vector<Path> available() {
    std::vector<Path> out{{"scalar", &scalar_scanner, &scalar_gram}};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) {
        out.push_back({"avx2", &avx2_scanner, &avx2_gram});
        // Processors of 2017 and 2018 have AVX-512 without the instructions that count bits and look up bytes.
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
            const GramLoops *gram = __builtin_cpu_supports("avx512vpopcntdq") ? &avx512_gram : &avx2_gram;
            out.push_back({"avx512", &avx512_scanner, gram});
            if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vpopcntdq"))
                out.push_back({"avx512vbmi", &avx512vbmi_scanner, gram});
        }
    }
#elif defined(__aarch64__)
    // The compiler already uses NEON to count bits in the plain loops.
    out.push_back({"neon", &neon_scanner, &scalar_gram});
#endif
    return out;
}

const std::vector<Path> &paths() {
    static const std::vector<Path> all = available();
    return all;
}

}  // namespace

const Path *path(const std::string &name) {
    if (name.empty()) return &paths().back();
    for (const Path &one : paths())
        if (name == one.name) return &one;
    return nullptr;
}

std::vector<std::string> path_names() {
    std::vector<std::string> out;
    for (const Path &one : paths()) out.emplace_back(one.name);
    return out;
}

std::string listed_paths() {
    std::string names;
    for (const Path &one : paths()) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

}  // namespace bitrank

// The instruction sets that this machine can run: each path is one implementation of every inner loop.
#pragma once

#include <string>
#include <vector>

#include "learn/gram.hpp"
#include "search/scan.hpp"

namespace bitrank {

struct Path {
    const char *name;
    const Scanner *scanner;
    const GramLoops *gram;
};

// The named path, or the fastest one for an empty name; nullptr if this machine cannot run it.
const Path *path(const std::string &name = "");

// Names of all paths, slowest first.
std::vector<std::string> path_names();

// The same as one text, with commas between them.
std::string listed_paths();

}  // namespace bitrank

// What is wrong with the options of `tierctl run` whatever becomes of the daemon: a job of hours does not go without a cache for a typing error.
#pragma once

#include <string>

#include "tierctl/run/job_daemon.h"
#include "tierd/config/config.h"

namespace tierctl::run {

// One sentence that names the option; "": nothing is found wrong. Not judged: sources (a file system may come later), and whether a policy that is not built in is one of
// the user's own, as long as there are any. `options.ssd` is absolute, or a word.
std::string WrongOption(const DaemonOptions& options, const tierd::config::GetEnvironment& environment);

// Why no report can be written to this absolute path at the end of the job; "": it can, as far as one sees, or it is empty.
std::string WrongReport(const std::string& path);

}  // namespace tierctl::run

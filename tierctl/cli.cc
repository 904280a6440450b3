#include "tierctl/cli.h"

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "policies/orders/plan.h"
#include "tierctl/cli_checks.h"
#include "tierctl/cli_completion.h"
#include "tierctl/cli_usage.h"
#include "tierctl/client/control_client.h"

namespace tierctl {
namespace {

// Examples stand above everything else: what most people look for.
class ExamplesFirst final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = app->get_description() + "\n\n";
    const bool own = app->get_parent() == nullptr || app->get_footer() != app->get_parent()->get_footer();  // a verb begins with that of its parent
    if (own && !app->get_footer().empty()) text += "Examples:\n" + app->get_footer() + "\n\n";
    text += make_usage(app, name) + make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode);
    if (app->get_parent() == nullptr) text += "\nExit code: 0 ok, 1 error, 2 done in part, 3 daemon unreachable, 64 wrong usage.\nMore: man tierctl, tierctl VERB --help.\n";
    return text;
  }

 private:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = Formatter::make_usage(app, std::move(name));
    if (app->get_prefix_command()) usage.insert(usage.find('\n'), " [--] COMMAND [ARGUMENT ...]");
    return usage;
  }
};

CLI::App* Verb(CLI::App& parent, const char* name, const char* what, Command& command) {
  CLI::App* verb = parent.add_subcommand(name, what);
  verb->fallthrough();
  const std::string full = parent.get_parent() == nullptr ? name : parent.get_name() + " " + name;
  verb->callback([&command, full] { command.verb = full; });
  return verb;
}

CLI::Option* Paths(CLI::App* verb, Command& command) { return verb->add_option("path", command.paths, "files or directories")->check(IsName); }

void AddLookingVerbs(CLI::App& app, Command& command) {
  Verb(app, "status", "tiers, sources, what readers got, and what is wrong", command)->footer("  tierctl status --json | jq .tiers.ram");
  CLI::App* ls = Verb(app, "ls", "known files and how much of each is in which tier", command);
  Paths(ls, command)->required();
  ls->add_flag("-r,--recursive", command.recursive, "everything below, not only the next level");
  ls->add_flag("-0,--null", command.null_separated, "names only, each followed by a NUL byte");
  ls->footer("  tierctl ls -r /pfs/imagenet/train");
  CLI::App* stat = Verb(app, "stat", "all that is known about files", command);
  Paths(stat, command)->required();
  stat->footer("  tierctl stat /pfs/imagenet/train/n01440764/img_0001.jpg\n  tierctl stat --json /pfs/imagenet/train/*/img_0001.jpg");
  CLI::App* du = Verb(app, "du", "how much of a tree is cached: SIZE, RAM, SSD, MISSING", command);
  Paths(du, command)->required();
  du->add_flag("--no-walk", command.no_walk, "do not list what has not been listed yet: sums of what is known");
  du->footer("  tierctl du /pfs/imagenet");
  CLI::App* explain = Verb(app, "explain", "why a file is or is not cached", command);
  Paths(explain, command)->required();
  explain->footer("  tierctl explain /pfs/imagenet/train/n01440764/img_0001.jpg");
  Verb(app, "version", "versions of tierctl and of the daemon", command)->footer("  tierctl version");
  CLI::App* doctor = Verb(app, "doctor", "looks at this machine and at a running daemon: what is slow or will not work, and the remedy (needs no daemon)", command);
  doctor->add_option("--config", command.config_file, "configuration file to judge by; default: the one tierd would read");
  doctor->add_option("--source", command.source, "a directory on the parallel file system to look at");
  doctor->add_option("--cache", command.cache, "directory meant for the SSD tier");
  doctor->add_flag("--no-speed", command.no_speed, "do not measure the SSD (half a second of reading and writing)");
  doctor->footer("  tierctl doctor --source /pfs/imagenet --cache /nvme/tierd");
}

void AddWatchingVerbs(CLI::App& app, Command& command) {
  CLI::App* top = Verb(app, "top", "reads, tiers, sources and jobs, live; q ends it", command);
  top->add_option("-d,--delay", command.interval_s, "seconds between two looks")->check(CLI::Range(0.1, 3600.0))->check(IsFinite)->type_name("SECONDS");
  top->add_option("-n,--count", command.count, "looks to take; default: until q")->type_name("NUMBER")->check(IsWhole(0, UINT32_MAX));
  top->add_flag("-b,--batch", command.batch, "one screen after the other, as where stdout is no terminal");
  top->footer("  tierctl top\n  tierctl top -b -n 2 -d 10      rates of ten seconds, as text");
  CLI::App* metrics = Verb(app, "metrics", "the metrics of the daemon in the text format of Prometheus", command);
  metrics->add_option("-o,--output", command.output_file, "write them to this file, whole or not at all: for the textfile collector; - is stdout")->type_name("FILE")->check(IsName);
  metrics->add_option("--label", command.labels, "add this label to every sample; may be repeated")->type_name("NAME=VALUE")->allow_extra_args(false)->check(IsLabel);
  metrics->add_option("--from", command.from, "not of the daemon, but from this file (- is stdin), which anybody may have written: at most 1 MiB of it, and tierd's own metrics only")->type_name("FILE")->check(IsName);
  metrics->footer("  tierctl metrics --output /var/lib/prometheus/node-exporter/tierd.prom");
  CLI::App* debug = app.add_subcommand("debug", "for reports of problems: bundle");
  debug->fallthrough()->require_subcommand(1);
  CLI::App* bundle = Verb(*debug, "bundle", "one file with state, settings and metrics, without paths, names or data", command);
  bundle->add_option("-o,--output", command.output_file, "this file; - is stdout; default: tierd-debug-TIME.json here")->type_name("FILE")->check(IsName);
  bundle->footer("  tierctl debug bundle");
}

void AddPolicy(CLI::App& app, Command& command) {
  CLI::App* policy = app.add_subcommand("policy", "who may enter a tier and who leaves: list, show, set, try, prioritize");
  policy->fallthrough()->require_subcommand(1);
  Verb(*policy, "list", "the policies that there are, and which source has which", command)->footer("  tierctl policy list");
  CLI::App* show = Verb(*policy, "show", "the policy of each source", command);
  show->add_option("source", command.key, "one source; default: all");
  show->footer("  tierctl policy show\n  tierctl policy show imagenet");
  CLI::App* set = Verb(*policy, "set", "another policy, until the next reload", command);
  set->add_option("policy", command.value, "such as freeze or lru")->required();
  set->add_option("source", command.key, "one source; default: all");
  set->footer("  tierctl policy set lru imagenet");
  CLI::App* attempt = Verb(*policy, "try", "what another policy would hit on what is read from now on; without one, what those that are tried hit so far", command);
  attempt->add_option("policy", command.value, "such as lru or s3fifo");
  attempt->add_option("source", command.key, "one source; default: the only one");
  attempt->add_option("--parameters", command.parameters, "of the policy: key=value,key=value")->type_name("TEXT");
  attempt->add_flag("--stop", command.stop, "no longer");
  attempt->footer("  tierctl policy try lru imagenet\n  tierctl policy try\n  tierctl policy try --stop lru imagenet");
}

void AddPrioritize(CLI::App& policy, Command& command) {
  CLI::App* prioritize = Verb(policy, "prioritize", "what files are worth to the application, for the policy importance", command);
  prioritize->add_option("file", command.list_file, "a line per file: its priority (0 or more, relative to each other), a space, its path; - is stdin")->required()->check(IsName);
  prioritize->footer("  tierctl policy set importance imagenet\n  tierctl policy prioritize losses.txt");
}

void AddTrace(CLI::App& app, Command& command) {
  CLI::App* trace = app.add_subcommand("trace", "note who reads what, for `tierctl simulate`: start, stop");
  trace->fallthrough()->require_subcommand(1);
  CLI::App* start = Verb(*trace, "start", "note the reads of a source in a new file", command);
  start->add_option("file", command.output_file, "a file that is not there yet, on a disk of this node")->required()->check(IsName);
  start->add_option("source", command.key, "one source; default: the only one");
  start->add_option("--most", command.most, "end when the file is so large; default: 1 GiB, some 200 million reads")->type_name("SIZE")->check(IsSize("10GB"));
  start->footer("  tierctl trace start /tmp/epoch.trc imagenet");
  CLI::App* stop = Verb(*trace, "stop", "end it, and wait until the file is whole", command);
  stop->add_option("source", command.key, "one source; default: the only one");
  stop->footer("  tierctl trace stop imagenet\n  tierctl simulate /tmp/epoch.trc");
}

constexpr std::uint64_t kLargestPid = 1 << 22;  // of any Linux

void AddPlanOptions(CLI::App* verb, PlanOptions& o, bool recipe) {
  verb->add_option("list", o.list, "the samples in the order of their indices: a file with a path a line (or NUL after each), or a directory as ImageFolder takes it")->required()->type_name("LIST")->check(IsName);
  verb->add_flag("--keep", o.keep, "also when nobody has read by it for ten minutes");
  verb->add_option("--process", o.process, "until this process ends")->type_name("PID")->check(IsWhole(1, kLargestPid));
  if (!recipe) return;
  verb->add_option("--epoch", o.epoch, "number of the first epoch to come")->check(IsWhole(0, tierd::orders::kMaxEpoch))->capture_default_str();
  verb->add_option("--epochs", o.epochs, "how many epochs from there on, 1 or more; default: not known")->check(IsWhole(1, tierd::orders::kMaxEpoch));
  verb->add_option("--position", o.position, "samples of the first of them that have been read already: 0 to all that this reader has in an epoch")->check(IsWhole(0, tierd::orders::kMaxSamples))->capture_default_str();
  verb->add_option("--batch-size", o.batch_size, "with --batch-drop-last: the DataLoader's")->check(IsWhole(1, tierd::orders::kMaxSamples));
  verb->add_flag("--batch-drop-last", o.batch_drop_last, "the DataLoader leaves out the last batch if it is not whole");
}

void AddPlan(CLI::App& app, Command& command) {
  PlanOptions& o = command.plan;
  CLI::App* plan = app.add_subcommand("plan", "the order in which a program will read, told ahead: torch-distributed, sequential, tell, list, remove");
  plan->fallthrough()->require_subcommand(1);
  CLI::App* distributed = Verb(*plan, "torch-distributed", "the order of PyTorch's DistributedSampler, for one rank on this node", command);
  AddPlanOptions(distributed, o, true);
  distributed->add_option("--seed", o.seed, "of the sampler")->check(IsSeed)->capture_default_str();
  distributed->add_option("--world", o.world, "num_replicas, 1 or more")->check(IsWhole(1, tierd::orders::kMaxWorld))->capture_default_str();
  distributed->add_option("--rank", o.rank, "which of them: 0 to world - 1")->check(IsWhole(0, tierd::orders::kMaxWorld - 1))->capture_default_str();
  distributed->add_flag("--drop-last", o.drop_last, "the sampler's drop_last");
  distributed->add_flag("--no-shuffle", o.no_shuffle, "the sampler's shuffle=False");
  distributed->add_flag("--no-set-epoch", o.no_set_epoch, "the program does not call set_epoch: each epoch has the order of the first");
  distributed->footer("  tierctl plan torch-distributed --seed 0 --world 4 --rank 1 --epochs 90 /pfs/imagenet/train");
  CLI::App* sequential = Verb(*plan, "sequential", "0, 1, 2, ... in each epoch", command);
  AddPlanOptions(sequential, o, true);
  sequential->footer("  tierctl plan sequential --epochs 3 /pfs/imagenet/val\n  tierctl plan sequential --keep shards.txt");
  CLI::App* tell = Verb(*plan, "tell", "any plan, as a document (PLAN.md)", command);
  tell->add_option("document", o.document, "a file with the plan as JSON; \"samples\" may be left out")->required()->type_name("FILE")->check(IsName);
  AddPlanOptions(tell, o, false);
  tell->footer("  tierctl plan tell order.json /pfs/imagenet/train");
  Verb(*plan, "list", "what was told, where its readers are, and whether it is right", command)->footer("  tierctl plan list");
  CLI::App* remove = Verb(*plan, "remove", "forget plans", command);
  remove->add_option("plan", command.jobs, "numbers of plans")->required()->check(IsNumberOf("a plan"));
  remove->footer("  tierctl plan remove 3");
}

void AddActingVerbs(CLI::App& app, Command& command) {
  CLI::App* prefetch = Verb(app, "prefetch", "bring files, or all below directories, before they are read", command);
  prefetch->alias("load")->alias("warmup");
  Paths(prefetch, command);
  prefetch->add_option("-f,--files-from", command.list_file, "more paths, one a line, from this file (- is stdin)")->check(IsName);
  prefetch->add_flag("-0,--null", command.null_separated, "paths in that file end with a NUL byte instead of a line feed");
  prefetch->add_option("--tier", command.tier, "ram (and SSD, by policy) or ssd alone")->check(CLI::IsMember({"ram", "ssd"}));
  prefetch->add_flag("-w,--wait", command.wait, "wait, and say at the end how much is verified to be there; exit 2 if short");
  prefetch->add_flag("--pin", command.pin, "and keep it until unpinned");
  prefetch->add_flag("--no-evict", command.keep, "only fill what is free; nothing leaves for it");
  prefetch->footer("  tierctl prefetch --wait /pfs/imagenet/train           symbolic links within the source are followed");
  CLI::App* evict = Verb(app, "evict", "drop files from both tiers", command);
  evict->alias("free");
  Paths(evict, command)->required();
  evict->add_flag("--invalidate", command.invalidate, "they have changed: forget everything known about them too");
  evict->footer("  tierctl evict /pfs/imagenet/val\n  tierctl evict --invalidate /pfs/labels.csv            it was written anew");
  CLI::App* pin = Verb(app, "pin", "known files never leave the node by themselves; exit 2 if they are not all there", command);
  Paths(pin, command)->required();
  pin->footer("  tierctl pin /pfs/imagenet/val                        symbolic links within the source are followed");
  CLI::App* unpin = Verb(app, "unpin", "undo pin", command);
  Paths(unpin, command)->required();
  unpin->footer("  tierctl unpin /pfs/imagenet/val");
  CLI::App* verify = Verb(app, "verify", "read and check every cached record (of paths, or all); exit 2 if some were bad", command);
  Paths(verify, command);
  verify->footer("  tierctl verify\n  tierctl verify /pfs/imagenet/train");
  Verb(app, "jobs", "prefetch and other jobs, running and finished", command)->footer("  tierctl jobs");
  CLI::App* wait = Verb(app, "wait", "wait for jobs; exit 2 if one ends short", command);
  wait->add_option("job", command.jobs, "numbers of jobs")->required()->check(IsNumberOf("a job"));
  wait->footer("  tierctl wait 7 && tierctl du /pfs/imagenet/train");
  CLI::App* cancel = Verb(app, "cancel", "end jobs; what they brought stays", command);
  cancel->add_option("job", command.jobs, "numbers of jobs")->required()->check(IsNumberOf("a job"));
  cancel->footer("  tierctl cancel 7");
  CLI::App* config = app.add_subcommand("config", "the daemon's settings: get, set, reload");
  config->fallthrough()->require_subcommand(1);
  CLI::App* get = Verb(*config, "get", "values and where each came from", command);
  get->add_option("key", command.key, "such as ram.capacity; default: all");
  get->footer("  tierctl config get ram.capacity\n  tierctl config get");
  CLI::App* set = Verb(*config, "set", "change a value until the next reload", command);
  set->add_option("key", command.key, "such as ram.capacity")->required();
  set->add_option("value", command.value, "as in the file, such as 2GB")->required();
  set->footer("  tierctl config set ram.capacity \"2 GB\"");
  Verb(*config, "reload", "read the configuration file again; with a mistake in it nothing changes", command)->footer("  tierctl config reload");
}

void AddCaringVerbs(CLI::App& app, Command& command) {
  BenchOptions& o = command.bench;
  CLI::App* bench = Verb(app, "bench", "what readers here get from the file system and through tierd: RAM, SSD, source; reads a sample and brings it into the cache", command);
  bench->add_option("path", command.paths, "a directory below a source; default: the first source")->expected(1)->check(IsName);
  bench->add_option("--files", o.files, "files to draw")->check(CLI::Range(2, 100000))->capture_default_str();
  bench->add_option("--readers", o.readers, "readers side by side")->check(CLI::Range(1, 256))->capture_default_str();
  bench->add_option("--seconds", o.seconds, "for each pass at most")->check(CLI::Range(0.1, 600.0))->check(IsFinite)->capture_default_str();
  bench->footer("  tierctl bench /pfs/imagenet/train\n  tierctl bench --readers 16 /pfs/imagenet/train      as many as the loaders of the node have workers");
  CLI::App* gc = Verb(app, "gc", "give back disk space of no use: what killed runs left behind, regions of the SSD tier in which nothing lives", command);
  gc->footer("  tierctl gc");
}

CLI::App* AddRun(CLI::App& app, Command& command) {
  RunOptions& o = command.run;
  CLI::App* run = Verb(app, "run", "run a command with its reads served from the cache; starts a tierd for it if none is there", command);
  run->prefix_command()->fallthrough(false);
  run->add_option("--source", o.sources, "a directory tree to accelerate; may be repeated; default: network mounts")->type_name("DIR")->allow_extra_args(false)->check(IsNotEmpty);
  run->add_option("--ram", o.ram, "RAM tier of the daemon started: \"8 GiB\", \"8G\" (the same), \"25%\", \"auto\"")->type_name("SIZE")->check(IsNotEmpty);
  run->add_option("--ssd", o.ssd, "directory of its SSD tier, or off; default: in $SLURM_TMPDIR, $TMPDIR or /var/tmp; where that is in memory (tmpfs) or on a network file system there is no SSD tier")->type_name("DIR|off")->check(IsNotEmpty);
  run->add_option("--policy", o.policy, "its policy")->type_name("NAME")->check(IsNotEmpty);
  run->add_option("--report", o.report, "write the summary to this file, as JSON; it may be a descriptor (/dev/fd/3), not stdout, which is the command's")->type_name("FILE")->check(IsNotEmpty)->check(IsNoStdout);
  run->add_flag("--keep", o.keep, "leave the SSD tier for the next run --keep");
  run->add_flag("--no-preload", o.no_preload, "only start the daemon and set the environment: for programs that use libtier");
  run->add_flag("--real-fds", o.real_fds, "every descriptor is a real one: for programs that hand them to io_uring or cuFile");
  run->add_flag("-q,--quiet", o.quiet, "no summary");
  run->footer("  tierctl run --source /pfs/imagenet -- python train.py\n  TIERD_DISABLE=1 tierctl run -- python train.py            as if tierd were not there");
  return run;
}

void AddSimulate(CLI::App& app, Command& command) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  SimulateOptions& o = command.simulate;
  CLI::App* simulate = Verb(app, "simulate", "what policies would hit, and how long epochs would take, with so much RAM and SSD (needs no daemon)", command);
  simulate->add_option("trace", o.trace, "a trace to replay (TRACE.md, or CSV); default: a job as described by the options")->check(IsName);
  simulate->add_option("-p,--policy", o.policies, "names, or paths of .so files, separated by commas")->delimiter(',')->capture_default_str();
  simulate->add_option("--ram", o.ram, "sizes of RAM to try: \"40 GB\" or \"25%\" of the dataset, separated by commas")->delimiter(',')->check(IsAmount)->capture_default_str();
  simulate->add_option("--ssd", o.ssd, "size of the SSD tier: \"400 GB\" or \"50%\" of the dataset")->check(IsAmount)->capture_default_str();
  simulate->add_option("--mode", o.mode, "seeded: the policy is told the order; blind: it is not")->check(CLI::IsMember({"seeded", "blind"}))->capture_default_str();
  simulate->add_option("--lookahead", o.lookahead, "epochs of the order that it is told ahead")->check(CLI::Range(1, 1000))->capture_default_str();
  simulate->add_option("-n,--samples", o.samples, "samples of the dataset")->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 28))->capture_default_str();
  simulate->add_option("--size", o.size, "mean size of a sample: 1 B to 1 TB")->check(IsSize("110KB", 1'000'000'000'000))->capture_default_str();
  simulate->add_option("--sigma", o.sigma, "spread of the sizes: sigma of their logarithm, 0 to 4")->check(IsReal(0, 4))->capture_default_str();
  simulate->add_option("--order", o.order, "of the samples in an epoch; same: the same in each")->check(CLI::IsMember({"distributed", "same", "sequential", "replacement"}))->capture_default_str();
  simulate->add_option("--epochs", o.epochs, "epochs to run")->check(CLI::Range(1, 100000))->capture_default_str();
  simulate->add_option("--skip", o.skip, "epochs at the start that do not count")->check(IsWhole(0, UINT32_MAX))->capture_default_str();
  simulate->add_option("--nodes", o.nodes, "nodes among which an epoch is dealt out")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  simulate->add_option("--node", o.node, "which of them is simulated: 0 to nodes - 1")->check(IsWhole(0, UINT32_MAX))->capture_default_str();
  simulate->add_option("--seed", o.seed, "of the order and the sizes, and of policies that draw")->check(IsWhole(0, UINT64_MAX))->capture_default_str();
  simulate->add_option("--step-us", o.step_us, "what the accelerator takes per sample")->check(IsReal(0, kAny))->capture_default_str();
  simulate->add_option("--readers", o.readers, "worker processes")->check(IsAbove0)->capture_default_str();
  simulate->add_option("--ssd-bandwidth", o.ssd_bandwidth, "bytes per second")->check(IsSize("2GB"))->capture_default_str();
  simulate->add_option("--source-bandwidth", o.source_bandwidth, "bytes per second")->check(IsSize("500MB"))->capture_default_str();
  simulate->add_option("--source-latency-ms", o.source_latency_ms, "of one operation")->type_name("MS")->check(IsReal(0, kAny))->capture_default_str();
  simulate->add_option("--source-concurrency", o.source_concurrency, "operations that the source serves at a time")->check(IsAbove0)->capture_default_str();
  simulate->add_option("--goal,--target", o.goal, "how much RAM (with this SSD), how much SSD (with each RAM) for so much of the best speed (1% to 100%)?")->type_name("PERCENT")->check(IsGoal);
  simulate->add_option("--svg", o.svg, "draw the curves into this file; - is stdout, in place of the table");
  simulate->add_option("--html", o.html, "curves and table as a page, into this file; - as with --svg");
  simulate->footer("  tierctl simulate --nodes 16 --epochs 90 --ram 3.125%,6.25%,12.5% --html curves.html\n  tierctl simulate trace.csv -p lru,belady --goal 90%");
}

// Of the options that stand before the verb.
bool TakesValue(std::string_view option) { return option == "--socket" || option == "--color"; }

// Where the command of `run` begins if "--" says so: the place of the "--", else argc. (CLI11 gives a subcommand's "--" to its parent.)
int EndOfOptions(int argc, const char* const* argv) {
  int verb = 1;
  while (verb < argc && argv[verb][0] == '-') verb += TakesValue(argv[verb]) ? 2 : 1;
  if (verb >= argc || std::string_view(argv[verb]) != "run") return argc;
  int end = verb;
  while (end < argc && std::string_view(argv[end]) != "--") ++end;
  return end;
}

std::string NotBelow(std::uint64_t number, std::uint64_t all, const std::string& option) {
  return "\"" + std::to_string(number) + "\" is no whole number from 0 to " + std::to_string(all - 1) + ", with " + option + " " + std::to_string(all);
}

// What a command line lacks of which each part is right; "": nothing. (CLI11's needs() would stand in the help and the man pages as part of the option's name.)
std::string Lack(const Command& command) {
  const bool named = !command.paths.empty() || !command.list_file.empty();
  if (command.verb == "prefetch" && !named) return "prefetch: name paths, or a list with -f";
  if (command.verb == "policy try" && command.value.empty() && (command.stop || !command.parameters.empty())) return "policy try: --stop and --parameters are of a policy; name it";
  if (command.plan.batch_drop_last && command.plan.batch_size == 0) return command.verb + ": --batch-drop-last needs --batch-size";
  if (command.plan.rank >= command.plan.world) return command.verb + ": --rank: " + NotBelow(command.plan.rank, command.plan.world, "--world");
  return "";
}

// What is wrong with the job that `simulate` is to make up, or that there is one beside a trace.
std::string WrongJob(const CLI::App& simulate, const SimulateOptions& o) {
  constexpr std::array kOfJob = {"--samples", "--size", "--sigma", "--order", "--epochs", "--nodes", "--node"};
  for (const char* option : kOfJob) {
    if (!o.trace.empty() && simulate.count(option) != 0) return std::string("simulate: ") + option + " is of a job that is made up; the trace \"" + o.trace + "\" says it itself";
  }
  if (o.nodes > o.samples) return "simulate: --nodes: " + std::to_string(o.nodes) + " nodes share " + std::to_string(o.samples) + " samples (--samples)";
  if (o.node >= o.nodes) return "simulate: --node: " + NotBelow(o.node, o.nodes, "--nodes");
  return "";
}

}  // namespace

Parsed ParseCommandLine(int argc, const char* const* argv) {
  Parsed parsed;
  Command command;
  CLI::App app("Asks and directs tierd, the node-local cache for training data.", "tierctl");
  app.add_option("--socket", command.socket, "the daemon's socket, or the directory that it is in; default: $TIERD_SOCKET (a socket), $XDG_RUNTIME_DIR/tierd, /tmp/tierd-UID")->check(IsName);
  app.add_flag("--json", command.json, "answer as JSON on stdout (run: --report)");
  app.add_option("--color", command.color, "colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always or never")->check(CLI::IsMember({"auto", "always", "never"}));
  app.set_version_flag("--version", "tierctl " TIERD_VERSION);
  app.require_subcommand(1);
  app.formatter(std::make_shared<ExamplesFirst>());
  app.footer("  tierctl run --source /pfs/train -- python train.py   a job with its reads served from the cache\n"
             "  tierctl prefetch --wait /pfs/train                   bring it up, and verify that it is there\n"
             "  tierctl status                                       what is cached, and what readers got\n"
             "  tierctl doctor                                       what is slow or will not work, and the remedy");
  AddLookingVerbs(app, command);
  AddWatchingVerbs(app, command);
  AddPolicy(app, command);
  AddPrioritize(*app.get_subcommand("policy"), command);
  AddTrace(app, command);
  AddPlan(app, command);
  AddActingVerbs(app, command);
  AddCaringVerbs(app, command);
  AddSimulate(app, command);
  const CLI::App* const run = AddRun(app, command);
  std::string shell;
  CLI::App* completion = app.add_subcommand("completion", "a script that makes the shell complete verbs and options");
  completion->add_option("shell", shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("  source <(tierctl completion bash)\n  tierctl completion fish >~/.config/fish/completions/tierctl.fish");
  try {
    app.parse(EndOfOptions(argc, argv), argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForAllHelp&) {
    parsed.text = app.help("", CLI::AppFormatMode::All);
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = std::string(version.what()) + "\n";
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = kExitUsage;
    parsed.complaint = Complaint(app, error, {argv + 1, argv + argc});
    return parsed;
  }
  if (!shell.empty()) {
    parsed.text = CompletionScript(app, shell);
    return parsed;
  }
  std::string lack = Lack(command);
  if (command.verb == "simulate") lack = WrongJob(*app.get_subcommand("simulate"), command.simulate);
  if (!lack.empty()) {
    parsed.exit_code = kExitUsage;
    parsed.complaint = lack + " (tierctl " + command.verb + " --help)";
    return parsed;
  }
  if (command.verb == "run") {
    std::vector<std::string>& arguments = command.run.arguments;
    arguments = run->remaining();
    const int end = EndOfOptions(argc, argv);
    for (int i = arguments.empty() ? end + 1 : end; i < argc; ++i) arguments.emplace_back(argv[i]);  // a "--" behind a command is the command's
    if (arguments.empty() || arguments.front().starts_with('-')) {
      parsed.exit_code = kExitUsage;
      parsed.complaint = arguments.empty() ? "run: name a command (tierctl run --help)" : "run: unknown option " + arguments.front() + " (tierctl run --help)";
      return parsed;
    }
  }
  parsed.command = std::move(command);
  return parsed;
}

}  // namespace tierctl

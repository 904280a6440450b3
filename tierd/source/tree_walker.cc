#include "tierd/source/tree_walker.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "tierd/source/open_beneath.h"

namespace tierd::source {
namespace {

// Entries that are put into inode order together: on disk file systems and on Lustre that is about the order of the data.
constexpr std::size_t kSortBlock = 65536;
// Entries one task stats: at a millisecond each the next worker should not wait longer than this many.
constexpr std::size_t kStatSlice = 64;
// About what the kernel asks a file system for at a time, or a few times.
constexpr std::size_t kNamesPerRequest = 512;
// Names after which the task that lists shows that it goes on: what hangs is one call, not a large directory. Few enough for a file system that answers with 4 KiB at a time.
constexpr std::size_t kAliveEvery = 64;

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

std::uint8_t TypeOf(std::uint32_t mode) { return static_cast<std::uint8_t>(IFTODT(mode)); }

std::string Join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

}  // namespace

struct TreeWalker::Walk {
  std::uint64_t id = 0;
  bool recursive = true;
  bool with_stat = false;
  std::atomic<bool> cancelled{false};
  std::atomic<std::size_t> tasks{0};  // waiting, running or put off; the last one reports the end
  std::atomic<std::uint64_t> lost{0};  // parts of the tree that there was no memory for

  // Of one that rests.
  std::atomic<bool> rests{false};
  std::mutex mutex;
  std::vector<std::string> put_off;  // under the mutex, which only workers take: directories that are listed when it goes on

  // Runs a part of a task. False: memory ran out; the walk goes on without it, and is not complete.
  template <typename Work>
  bool Try(Work&& work) {
    try {
      work();
      return true;
    } catch (const std::bad_alloc&) {
      ++lost;
      return false;
    }
  }
};

struct TreeWalker::Directory {
  std::string path;
  std::unique_ptr<DIR, DirCloser> stream;
  io::FileStat stat;
  int error = 0;                      // written by the listing task only
  std::atomic<std::size_t> tasks{1};  // the listing one and its stat slices; the last one sends the batch with `last`
};

struct TreeWalker::Active {
  WalkRequest request;
  WalkTotals totals;
  std::shared_ptr<Walk> walk;  // owners: the walker and the tasks of the walk
  bool ending = false;
  bool to_return = false;  // it goes on, but nobody could be told to take what was put off
};

struct TreeWalker::Delivery {
  WalkBatch batch;
  std::uint64_t outside = 0;
  std::uint64_t errors = 0;
  int first_error = 0;
};

// The part of a walk that runs on worker threads. It refers to the walker only inside closures that run on the loop.
class TreeWalker::Crawl {
 public:
  Crawl(TreeWalker* walker, std::shared_ptr<Walk> walk)
      : walker_(walker), source_(walker->source_), walk_(std::move(walk)), budget_(walker->options_.budget), low_priority_(walker->options_.low_priority),
        batch_entries_(std::max<std::size_t>(walker->options_.batch_entries, 1)) {}

  // The task that lists `path`; the caller has counted it in walk->tasks.
  Task ListTask(std::string path) const {
    return [crawl = *this, path = std::move(path)](TaskContext& context) {
      bool put_off = false;
      crawl.walk_->Try([&] {
        put_off = crawl.PutsOff(path);
        if (!put_off) crawl.List(context, path);
      });
      if (!put_off) crawl.EndTask(context);
      else if (!crawl.walk_->rests) crawl.Return(context);  // it has gone on meanwhile, and whoever took what was put off may have come before this
    };
  }

  // The task that gives the pool back what was put off. None of walk->tasks: those are counted.
  Task ReturnTask() const {
    return [crawl = *this](TaskContext& context) { crawl.Return(context); };
  }

 private:
  bool PutsOff(const std::string& path) const;
  void Return(TaskContext& context) const;
  void List(TaskContext& context, const std::string& path) const;
  void ReadEntries(TaskContext& context, const std::shared_ptr<Directory>& directory) const;
  void EmitBlock(TaskContext& context, const std::shared_ptr<Directory>& directory, std::vector<WalkEntry> block) const;
  void EmitWithStats(TaskContext& context, const std::shared_ptr<Directory>& directory, std::vector<WalkEntry> block) const;
  void StatSlice(TaskContext& context, const std::shared_ptr<Directory>& directory, std::vector<WalkEntry> entries) const;
  void Descend(TaskContext& context, const Directory& directory, const WalkEntry& entry) const;
  void SubmitTask(TaskContext& context, Task task) const;
  void EndDirectory(TaskContext& context, const std::shared_ptr<Directory>& directory) const;
  void EndTask(TaskContext& context) const;
  void Send(TaskContext& context, Delivery delivery) const;
  bool Given(TaskContext& context) const { return walk_->cancelled || context.stopping(); }
  bool Ask(TaskContext& context) const;

  TreeWalker* walker_;
  std::shared_ptr<const Source> source_;
  std::shared_ptr<Walk> walk_;
  std::shared_ptr<RequestBudget> budget_;
  bool low_priority_;
  std::size_t batch_entries_;
};

bool TreeWalker::Crawl::PutsOff(const std::string& path) const {
  if (!walk_->rests || walk_->cancelled) return false;
  const std::lock_guard lock(walk_->mutex);
  walk_->put_off.push_back(path);
  return true;
}

// In the order in which they were put off: the pool takes the newest first.
void TreeWalker::Crawl::Return(TaskContext& context) const {
  std::vector<std::string> paths;
  {
    const std::lock_guard lock(walk_->mutex);
    paths.swap(walk_->put_off);
  }
  for (; !paths.empty(); paths.pop_back()) {
    if (!walk_->Try([&] { context.Submit(walk_->id, ListTask(std::move(paths.back()))); })) EndTask(context);
  }
}

// Waits until the source may be asked for one thing more. False: the walk is given up.
bool TreeWalker::Crawl::Ask(TaskContext& context) const {
  while (!Given(context)) {
    if (context.Draw(*budget_, low_priority_)) return true;
  }
  return false;
}

void TreeWalker::Crawl::Send(TaskContext& context, Delivery delivery) const {
  if (Given(context)) return;
  auto shared = std::make_shared<const Delivery>(std::move(delivery));  // std::function must be copyable
  context.Post([walker = walker_, id = walk_->id, shared] { walker->Deliver(id, *shared); });
}

void TreeWalker::Crawl::EndTask(TaskContext& context) const {
  if (walk_->tasks.fetch_sub(1) == 1) context.PostSurely([walker = walker_, id = walk_->id] { walker->Finish(id); });
}

void TreeWalker::Crawl::EndDirectory(TaskContext& context, const std::shared_ptr<Directory>& directory) const {
  if (directory->tasks.fetch_sub(1) != 1) return;
  Delivery delivery;
  delivery.batch.directory = directory->path;
  delivery.batch.last = true;
  delivery.batch.error = directory->error;
  delivery.batch.stat = directory->stat;
  directory->stream.reset();
  if (directory->error == EXDEV) {
    delivery.outside = 1;
  } else if (directory->error != 0) {
    delivery.errors = 1;
    delivery.first_error = directory->error;
  }
  Send(context, std::move(delivery));
}

void TreeWalker::Crawl::List(TaskContext& context, const std::string& path) const {
  if (!Ask(context)) return;
  auto directory = std::make_shared<Directory>();  // owners: this task and the stat tasks of the directory
  directory->path = path;
  OpenedFile opened = OpenBeneath(source_->root_fd(), path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  directory->error = opened.error;
  if (directory->error == 0) directory->error = StatAt(opened.fd.get(), "", false, &directory->stat);
  if (directory->error == 0) {
    directory->stream.reset(::fdopendir(opened.fd.get()));
    if (directory->stream == nullptr) {
      directory->error = errno;
    } else {
      opened.fd.Release();  // now the stream's
      if (!walk_->Try([&] { ReadEntries(context, directory); })) directory->error = ENOMEM;
    }
  }
  EndDirectory(context, directory);
}

void TreeWalker::Crawl::ReadEntries(TaskContext& context, const std::shared_ptr<Directory>& directory) const {
  std::vector<WalkEntry> block;
  std::size_t names = 0;
  std::uint64_t place = 0;
  while (!Given(context)) {
    if (names++ % kNamesPerRequest == 0 && names != 1 && !Ask(context)) break;
    if (names % kAliveEvery == 0) context.Alive();
    errno = 0;
    const dirent* read = ::readdir(directory->stream.get());
    if (read == nullptr) {
      directory->error = errno;
      break;
    }
    WalkEntry entry;
    entry.name = read->d_name;
    if (entry.name == "." || entry.name == "..") continue;
    entry.type = read->d_type;
    entry.ino = read->d_ino;
    entry.place = place++;
    block.push_back(std::move(entry));
    if (block.size() < kSortBlock) continue;
    EmitBlock(context, directory, std::move(block));
    block.clear();
    while (walk_->rests && !Given(context)) (void)context.Rest();
  }
  EmitBlock(context, directory, std::move(block));
}

void TreeWalker::Crawl::Descend(TaskContext& context, const Directory& directory, const WalkEntry& entry) const {
  if (!walk_->recursive || entry.type != DT_DIR) return;
  SubmitTask(context, ListTask(Join(directory.path, entry.name)));
}

void TreeWalker::Crawl::SubmitTask(TaskContext& context, Task task) const {
  ++walk_->tasks;
  try {
    context.Submit(walk_->id, std::move(task));
  } catch (const std::bad_alloc&) {
    --walk_->tasks;  // never the last one: that is the task we are in
    throw;
  }
}

void TreeWalker::Crawl::EmitBlock(TaskContext& context, const std::shared_ptr<Directory>& directory,
                                  std::vector<WalkEntry> block) const {
  std::sort(block.begin(), block.end(), [](const WalkEntry& a, const WalkEntry& b) { return a.ino < b.ino; });
  const bool unknown = std::any_of(block.begin(), block.end(), [](const WalkEntry& e) { return e.type == DT_UNKNOWN; });
  if (walk_->with_stat || unknown) {
    EmitWithStats(context, directory, std::move(block));
    return;
  }
  for (std::size_t begin = 0; begin < block.size() && !Given(context); begin += batch_entries_) {
    const auto first = block.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = block.begin() + static_cast<std::ptrdiff_t>(std::min(begin + batch_entries_, block.size()));
    for (auto entry = first; entry != last; ++entry) Descend(context, *directory, *entry);
    Delivery delivery;
    delivery.batch.directory = directory->path;
    delivery.batch.entries.assign(std::make_move_iterator(first), std::make_move_iterator(last));
    Send(context, std::move(delivery));
  }
}

void TreeWalker::Crawl::EmitWithStats(TaskContext& context, const std::shared_ptr<Directory>& directory,
                                      std::vector<WalkEntry> block) const {
  // Subdirectories first: with newest_first the stats then run before them, and few directories are open at a time.
  for (const WalkEntry& entry : block) Descend(context, *directory, entry);
  const std::size_t slice = std::min(batch_entries_, kStatSlice);
  // A directory of one slice is not worth another task.
  if (block.size() <= slice) {
    if (!block.empty()) StatSlice(context, directory, std::move(block));
    return;
  }
  for (std::size_t begin = 0; begin < block.size() && !Given(context); begin += slice) {
    context.Alive();
    const auto first = block.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = block.begin() + static_cast<std::ptrdiff_t>(std::min(begin + slice, block.size()));
    auto entries = std::make_shared<std::vector<WalkEntry>>(std::make_move_iterator(first), std::make_move_iterator(last));
    Task task = [crawl = *this, directory, entries](TaskContext& slice_context) {
      crawl.walk_->Try([&] {
        if (!crawl.Given(slice_context)) crawl.StatSlice(slice_context, directory, std::move(*entries));
      });
      crawl.walk_->Try([&] { crawl.EndDirectory(slice_context, directory); });
      crawl.EndTask(slice_context);
    };
    ++directory->tasks;
    try {
      SubmitTask(context, std::move(task));
    } catch (const std::bad_alloc&) {
      --directory->tasks;
      throw;
    }
  }
}

void TreeWalker::Crawl::StatSlice(TaskContext& context, const std::shared_ptr<Directory>& directory,
                                  std::vector<WalkEntry> entries) const {
  Delivery delivery;
  delivery.batch.directory = directory->path;
  const int fd = ::dirfd(directory->stream.get());
  for (WalkEntry& entry : entries) {
    if (Given(context)) return;
    const bool untyped = entry.type == DT_UNKNOWN;
    if (walk_->with_stat || untyped) {
      if (!Ask(context)) return;
      std::uint64_t mount = 0;
      const int error = StatEntry(fd, entry.name.c_str(), &entry.stat, &mount);
      context.Alive();
      if (error != 0) {
        ++delivery.errors;
        delivery.first_error = error;
      } else if (entry.stat.dev != source_->root_stat().dev || mount != source_->root_mount()) {
        // Something is mounted on the name, which is all that is known of it. A directory is counted as outside when it is opened.
        const bool is_directory = S_ISDIR(entry.stat.mode);
        entry.stat = {};
        if (!is_directory) ++delivery.outside;
        if (!is_directory && walk_->with_stat) continue;
        if (is_directory) entry.type = DT_DIR;
        if (is_directory && untyped) Descend(context, *directory, entry);
      } else {
        entry.has_stat = true;
        entry.type = TypeOf(entry.stat.mode);
        if (untyped) Descend(context, *directory, entry);
      }
    }
    delivery.batch.entries.push_back(std::move(entry));
  }
  Send(context, std::move(delivery));
}

TreeWalker::TreeWalker(std::shared_ptr<const Source> source, const Clock& clock, const WalkerOptions& options)
    : source_(std::move(source)),
      options_(options),
      pool_(clock, PoolOptions{options.threads, options.max_replacements, options.hung_after_ns, options.max_batches, true}) {}

TreeWalker::~TreeWalker() {
  for (auto& [id, active] : walks_) active->walk->cancelled = true;
}

WalkId TreeWalker::Start(WalkRequest request) {
  const std::uint64_t id = ++last_id_;
  auto walk = std::make_shared<Walk>();  // owners: see Active
  walk->id = id;
  walk->recursive = request.recursive;
  walk->with_stat = request.with_stat;
  walk->tasks = 1;
  const std::string path = request.path;
  walks_.emplace(id, std::make_shared<Active>(Active{std::move(request), WalkTotals(), walk, false}));
  const Crawl crawl(this, walk);
  if (Status status = pool_.Submit(id, crawl.ListTask(path)); !status.ok()) {
    Active& active = *walks_.at(id);
    active.totals.errors = 1;
    active.totals.first_error = status.sys_errno();
    pool_.Post([this, id] { Finish(id); });
  }
  return WalkId{id};
}

void TreeWalker::Cancel(WalkId id) {
  const auto found = walks_.find(static_cast<std::uint64_t>(id));
  if (found == walks_.end()) return;
  found->second->walk->cancelled = true;
  found->second->totals.cancelled = true;
  GoOn(id);  // so that it comes to its end
}

void TreeWalker::Rest(WalkId id) {
  const auto found = walks_.find(static_cast<std::uint64_t>(id));
  if (found != walks_.end()) found->second->walk->rests = true;
}

void TreeWalker::GoOn(WalkId id) {
  const auto found = walks_.find(static_cast<std::uint64_t>(id));
  if (found == walks_.end() || !found->second->walk->rests.exchange(false)) return;
  Return(found->first, *found->second);
}

// A worker does it: they may be many.
void TreeWalker::Return(std::uint64_t id, Active& active) {
  active.to_return = true;
  try {
    active.to_return = !pool_.Submit(id, Crawl(this, active.walk).ReturnTask()).ok();
  } catch (const std::bad_alloc&) {
  }
}

void TreeWalker::Deliver(std::uint64_t id, const Delivery& delivery) {
  const auto found = walks_.find(id);
  if (found == walks_.end() || found->second->totals.cancelled) return;
  const std::shared_ptr<Active> active = found->second;  // the callback may end this walk or start others
  WalkTotals& totals = active->totals;
  for (const WalkEntry& entry : delivery.batch.entries) {
    if (entry.type == DT_REG) {
      ++totals.files;
      totals.bytes += entry.stat.size;
    } else if (entry.type != DT_DIR) {
      ++totals.others;
    }
  }
  if (delivery.batch.last && delivery.batch.error == 0) ++totals.directories;
  totals.outside += delivery.outside;
  totals.errors += delivery.errors;
  if (totals.first_error == 0) totals.first_error = delivery.first_error;
  if (!active->request.on_batch) return;
  try {
    active->request.on_batch(delivery.batch);
  } catch (...) {  // whoever walks has not seen these: nothing he makes of the rest is complete
    ++totals.errors;
    if (totals.first_error == 0) totals.first_error = ENOMEM;
    throw;
  }
}

void TreeWalker::Finish(std::uint64_t id) {
  const auto found = walks_.find(id);
  if (found == walks_.end()) return;
  const std::shared_ptr<Active> active = std::move(found->second);
  walks_.erase(found);
  if (const std::uint64_t lost = active->walk->lost; lost != 0) {
    active->totals.errors += lost;
    if (active->totals.first_error == 0) active->totals.first_error = ENOMEM;
  }
  if (active->request.on_done) active->request.on_done(active->totals);
}

std::size_t TreeWalker::Poll(std::size_t budget) { return pool_.Poll(budget); }

void TreeWalker::Tick(std::int64_t now_ns) {
  pool_.Tick(now_ns);
  for (auto& [id, active] : walks_) {
    if (active->to_return) Return(id, *active);
  }
  if (pool_.hung() == 0) return;
  for (auto& [id, active] : walks_) {
    const std::size_t hung = pool_.CountHung(id);
    if (active->ending || hung == 0 || hung != active->walk->tasks) continue;
    // Only hung workers are left: what they would find is given up. Batches posted before come first.
    active->ending = true;
    active->totals.hung = hung;
    active->walk->cancelled = true;
    pool_.Post([this, number = id] { Finish(number); });
  }
}

int TreeWalker::event_fd() const { return pool_.event_fd(); }
std::size_t TreeWalker::active() const { return walks_.size(); }
std::size_t TreeWalker::hung_workers() const { return pool_.hung(); }

}  // namespace tierd::source

// Read-your-writes: what this process changes below a source is told to the daemon before the call that changed it returns. What cannot be told just now (a signal
// handler on a small stack, no memory) is told before this process is served anything again.
//
// Any thread. errno is left alone.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/room.h"

namespace tierd::preload {

void TellChange(const char* path, bool recursive);
// What has changed is not known.
void TellEverything();
// Anything below the sources may have changed: by whom is not known, and nothing is used before the
// source has confirmed it.
void TellDoubt();

// Whether something is left to be told; and tells it. False: it could not be: nothing may be served.
bool AnyUntold();
bool TellUntold();

// A path whose entry (itself, as lstat) or whose target (as stat) a call changes. Empty when it is below no source: on another file system that costs one system call.
enum class Changes : std::uint8_t { kEntry, kTarget };
struct NameAt {
  int directory;
  const char* path;
};
class ChangedName {
 public:
  ChangedName(int directory, const char* path, Changes what);
  // Another entry than that of `first`, which is `at_first`: if they are in one directory by their text, that is asked about once.
  ChangedName(const ChangedName& first, NameAt at_first, NameAt entry);
  explicit ChangedName(int fd);
  ~ChangedName();
  ChangedName(const ChangedName&) = delete;
  ChangedName& operator=(const ChangedName&) = delete;
  // After the change. `recursive`: everything below it too.
  void Tell(bool recursive) const;
  bool inside() const { return what_ != What::kOutside; }
  // As the source has it; "" of what is outside, or not known.
  const char* text() const { return what_ == What::kNamed ? name_.Get()->text : ""; }

 private:
  enum class What : std::uint8_t { kOutside, kNamed, kUnknown };
  // Where the last component of a name is.
  struct LastComponent {
    explicit LastComponent(const char* path);
    std::size_t begin = 0;
    std::size_t end = 0;         // 0: no call takes it
    bool names_entry = false;    // else the directory itself: "", ".", ".."
  };
  What NameOfTarget(int directory, const char* path);
  What NameOfDirectory(int directory, const char* path, const LastComponent& last);
  What NameOfEntry(int directory, const char* path, const LastComponent& last);
  What Append(const char* path, const LastComponent& last);
  void Ours();
  What what_ = What::kOutside;
  bool elsewhere_ = false;             // the entry's directory is where no source is
  bool is_part_of_root_ = false;       // sources may be found through the entry
  std::size_t directory_bytes_ = 0;    // of the kernel's name of that directory, which the name begins with; 0: it does not
  bool is_entry_ = false;
  mutable Room name_;
};

// The regular file behind such a name or number, if it is one. What is open of it here becomes real before the change, while its name leads to it, and shows the change as it
// does bare. Has it several names, it is read from the source by all of them from then on. Is it a directory, the directories that are listed there are opened. Costs one system call,
// inside a source alone.
class ChangedFile {
 public:
  ChangedFile(const ChangedName& name, int directory, const char* path, Changes what);
  ChangedFile(const ChangedName& name, int fd);
  // After the change, before its name is told.
  void Tell() const;
  // The entry was a link, no file: what is known by names through it is so no more.
  bool was_link() const { return was_link_; }

 private:
  void Note(const ChangedName& name, const struct stat& st);
  std::uint64_t inode_ = 0;
  bool other_names_ = false;
  bool was_link_ = false;
};

// The regular file at `path`, if it is one and below a source, is read from there from now on, by what is open of it and by what this process opens (NoteOtherNames). So is
// what lies directly in a directory.
void ReadFromSource(NameAt name, Changes what);

}  // namespace tierd::preload

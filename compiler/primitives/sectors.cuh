// primitive: at_most
// What is left, but at most so much.
__device__ __forceinline__ int at_most(int most, int64_t left) {
  return left < most ? int(left) : most;
}

// primitive: sector_order
// Deals a tile to the threads of a block, slot by slot of WIDTH neighbours, so that a warp asks for whole sectors of 32
// bytes and no two warps for one: where lines begin inside a sector, the slots before and behind them are nobody's.
// Lines are rows, or columns if those are what lies together. Elements that have no neighbours go in any order.
// Lines apart of whole 128 bytes are turned: the slots before one hold what is in its last sector, and a phase meets
// every bank once. Columns are dealt four at a time, by sectors of them that lie in different words of a tile's rows.
template <class T, int WIDTH>
struct sector_order {
  struct Slot {
    int row, column;
    bool is_there;
  };
  static constexpr int SECTOR = 32 / int(sizeof(T));
  bool turned;        // lines are columns
  bool by_columns;    // columns that lie apart, which are dealt four at a time
  int lines, length;  // lines, and elements of one
  int offset;         // elements of a sector before lines that nearly touch
  int first, skew;    // of others, before the first; more of them with each line
  int span;           // from line to line, in elements; of others slots of a line, whole sectors of them
  int last;           // the line that comes first in memory, of lines that nearly touch
  int count;          // slots, whole warps of them

  __device__ __forceinline__ sector_order(const T* tile, int rows, int columns, int64_t row_stride,
                                          int64_t column_stride) {
    const int64_t down = row_stride < 0 ? -row_stride : row_stride;
    const int64_t along = column_stride < 0 ? -column_stride : column_stride;
    turned = column_stride != 1 && (row_stride == 1 || down < along);
    lines = turned ? columns : rows, length = turned ? rows : columns;
    const int64_t stride = turned ? column_stride : row_stride, apart = turned ? along : down;
    const bool together = column_stride == 1 || row_stride == 1;
    skew = together ? int(stride & (SECTOR - 1)) : 0;
    first = together ? int(reinterpret_cast<size_t>(tile) / sizeof(T) % SECTOR) : 0;
    const bool near = (first || skew) && apart >= length && apart < length + SECTOR;
    by_columns = WIDTH == 1 && turned && row_stride == 1 && !near;
    const bool is_whole = !together || (lines > 1 && length % (4 * SECTOR) == 0);
    const int before = first || skew ? SECTOR - WIDTH : 0;  // at most, in the sector that a line begins in
    span = near ? int(apart) : is_whole ? length : (length + before + SECTOR - 1) / SECTOR * SECTOR;
    last = near && stride < 0 ? lines - 1 : 0;
    offset = near ? int(reinterpret_cast<size_t>(tile + last * stride) / sizeof(T) % SECTOR) : 0;
    if (near) first = skew = 0;
    const int all = by_columns ? (lines + 3) / 4 * 4 : lines;
    const int elements = near ? offset + (lines - 1) * span + length : all * span;
    count = length > 0 && lines > 0 ? ((elements + WIDTH - 1) / WIDTH + 31) / 32 * 32 : 0;
  }

  __device__ __forceinline__ Slot operator[](int slot) const {
    const int at = slot * WIDTH - offset, step = by_columns ? 4 * span : span;
    int line = at / step, place = at - line * step;
    if (by_columns) {
      const int of = place / SECTOR & 3;
      line = 4 * line + (sizeof(T) == 2 ? of >> 1 | (of & 1) << 1 : of);
      place = place / (4 * SECTOR) * SECTOR + (place & (SECTOR - 1));
    }
    place -= (first + line * skew) & (SECTOR - 1);
    if (place < 0) place += span;  // behind the line, if that is not of whole 128 bytes
    if (at < 0 || line >= lines || place >= length) return {0, 0, false};
    const int from = last ? last - line : line;
    return turned ? Slot{place, from, true} : Slot{from, place, true};
  }
};

// primitive: run_order
// Deals runs of ROWS x COLUMNS, whose beginnings data say, slot by slot of WIDTH neighbours: each run has slots of its
// own, whole sectors of 32 bytes, so that no two requests of warps ask for one. Each line (a row, or a column of a run
// whose rows are neighbours) is turned by how far into a sector it begins: what its last sector holds comes with the
// first. Lines that nearly touch are one line, from the sector on in which the run begins. All that is copied lies at
// multiples of WIDTH; runs that the array has not need not, nor need lines if it has one, and go as if they did.
template <class T, int WIDTH, int ROWS, int COLUMNS>
struct run_order {
  struct Slot {
    int row, column;
    bool is_there;
  };
  static constexpr int SECTOR = 32 / int(sizeof(T));
  bool is_turned, is_together, is_near;
  int lines, pitch, skew;  // lines of a run; slots of one, in elements; more elements before each than the one before
  int places;              // of a line, those in the gap behind it left out
  int span;                // slots of a run, in elements

  // Of rows and columns, as many as the array has.
  __device__ __forceinline__ run_order(int rows, int columns, int64_t row_stride, int64_t column_stride) {
    is_turned = ROWS > 1 && row_stride == 1 && column_stride != 1;
    is_together = column_stride == 1 || is_turned;
    const int64_t stride = is_turned ? column_stride : row_stride;
    const int length = is_turned ? ROWS : COLUMNS, has = is_turned ? rows : columns;
    lines = is_turned ? COLUMNS : ROWS;
    is_near = ROWS > 1 && is_together && 0 < has && has <= stride && stride < has + SECTOR && stride % WIDTH == 0;
    pitch = is_near ? int(stride) : (length + SECTOR - 1) / SECTOR * SECTOR;
    places = is_near ? has : length;
    skew = is_near || !is_together ? 0 : int(stride & (SECTOR - WIDTH));
    const int reach = is_near ? (lines - 1) * pitch + has + SECTOR - WIDTH : lines * pitch;
    span = (reach + SECTOR - 1) / SECTOR * SECTOR;
  }

  // Slots of so many runs, whole warps of them.
  __device__ __forceinline__ int count(int runs) const { return (runs * span / WIDTH + 31) / 32 * 32; }

  // Whether lines that nearly touch are shorter than the tile's: no slot has what is behind them.
  __device__ __forceinline__ bool has_gaps() const { return is_near && places < (is_turned ? ROWS : COLUMNS); }

  __device__ __forceinline__ int run(int slot) const { return int(uint32_t(slot * WIDTH) / uint32_t(span)); }

  // What a slot of a run holds that begins there.
  __device__ __forceinline__ Slot find(int slot, int run, const T* begin) const {
    const int before = is_together ? int(reinterpret_cast<size_t>(begin) / sizeof(T) & (SECTOR - WIDTH)) : 0;
    const int at = slot * WIDTH - run * span - (is_near ? before : 0);
    const int line = int(uint32_t(at < 0 ? 0 : at) / uint32_t(pitch));
    int place = at - line * pitch;
    if (!is_near) place -= (before + line * skew) & (SECTOR - 1);
    if (!is_near && place < 0) place += pitch;
    const bool is_there = at >= 0 && line < lines && place < places;
    return is_turned ? Slot{place, line, is_there} : Slot{line, place, is_there};
  }
};

// primitive: before_in_sector
// How many elements of its sector a line begins behind; none if those that follow each other are no neighbours.
template <class T>
__device__ __forceinline__ int before_in_sector(const T* line, int64_t stride) {
  constexpr int SECTOR = 32 / int(sizeof(T));
  return stride == 1 ? int(reinterpret_cast<size_t>(line) / sizeof(T) % SECTOR) : 0;
}

// primitive: copy_async_if; needs: copy_async_or_now
// What copy_async_or_now does, zeros where not valid, by the threads that take part. Every lane calls it.
template <class V>
__device__ __forceinline__ void copy_async_if(V* shared, const V* global, bool is_there, bool valid = true AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (is_there) copy_async_or_now(shared, global, valid);
#else
  if (is_there) return copy_async_or_now(shared, global, valid, line);
  emu::take_no_part(sizeof(V), sizeof(V) >= 4, line);
#endif
}

// primitive: load_shared_if; needs: load_shared
// One load from shared memory by the threads that take part, zeros elsewhere. Every lane calls it.
template <class T>
__device__ __forceinline__ T load_shared_if(const T* p, bool is_there AND_LINE) {
#ifndef TREADLE_EMULATOR
  T value{};
  if (is_there) value = load_shared(p);
  return value;
#else
  return emu::load_shared_if(p, is_there, line);
#endif
}

// primitive: store_shared_if; needs: store_shared
// One store to shared memory by the threads that take part. Every lane calls it.
template <class T>
__device__ __forceinline__ void store_shared_if(T* p, T value, bool is_there AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (is_there) store_shared(p, value);
#else
  emu::store_shared_if(p, value, is_there, line);
#endif
}

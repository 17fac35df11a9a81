// primitive: Part
// The positions along an axis of a tile that its array has: from `begin` on, and before `end`.
struct Part {
  int begin, end;
  __device__ __forceinline__ bool has(int at) const { return (begin == 0 || begin <= at) && at < end; }
};

// primitive: box_order; needs: kept, Part
// Deals the lines of a tile to the threads that copy it, by vectors of WIDTH neighbours, so that a warp asks for whole
// sectors of 32 bytes, and no two requests ask for one. Lines that lie UNIT apart begin equally far into a sector: so a
// thread finds a place in the first UNIT lines, and keeps it. Each line is turned by how far into a sector it begins:
// what its last sector holds comes with the first. Lines that nearly touch are one long line, of which a place before
// the first line is one in the last of the unit before.
template <class T, int WIDTH, int LENGTH, int THREADS>
struct box_order {
  static constexpr int SECTOR = 32 / int(sizeof(T)), UNIT = SECTOR < 8 ? 8 : SECTOR, STEP = THREADS * WIDTH;
  static constexpr int PITCH = (LENGTH + SECTOR - 1) / SECTOR * SECTOR;  // slots of a line that is turned
  int pitch, lines;        // slots from line to line; lines that all threads copy at once
  int first, skew;         // elements of a sector before the first line; more of them with each line
  int inside;              // places of a line, those in the gap behind it left out
  int line, slot, left;    // where the thread has come, and slots from there to the end of the unit
  int place;               // of the line, in elements
  bool is_there, is_near;  // whether the thread has a place; whether lines nearly touch
  bool is_split;           // whether places of its warp may be before the first line

  __device__ __forceinline__ box_order(const T* tile, Part part, int64_t stride, bool together, int thread) {
    is_near = together && 0 < part.end && part.end <= stride && stride < part.end + SECTOR;
    const int before = together ? int(reinterpret_cast<size_t>(tile) / sizeof(T) % SECTOR) : 0;
    pitch = is_near ? int(stride) : PITCH, inside = is_near ? part.end : LENGTH;
    first = is_near ? 0 : before, skew = is_near || !together ? 0 : int(stride & (SECTOR - 1));
    lines = kept(int(uint32_t(STEP) / uint32_t(pitch)));
    left = UNIT * pitch - thread * WIDTH, is_split = is_near && thread < 32;
    const int own = thread * WIDTH - (is_near ? before : 0);
    line = own < 0 ? -((pitch - 1 - own) / pitch) : own / pitch, slot = own - line * pitch;
    find();
  }

  // Whether any thread of the warp has slots.
  __device__ __forceinline__ bool goes_on(int thread) const { return left + thread % 32 * WIDTH > 0; }

  __device__ __forceinline__ void next() {
    line += lines, slot += STEP - lines * pitch, left -= STEP, is_split = false;
    if (slot >= pitch) slot -= pitch, ++line;
    find();
  }

  __device__ __forceinline__ void find() {
    place = slot - ((first + line * skew) & (SECTOR - 1));
    if (place < 0) place += PITCH;
    is_there = left > 0 && place < inside;
  }
};

// primitive: in_box_rows; needs: in_boxes; from: sm_90
// What in_boxes says of rows from the one before the tile on: the compiler need not know that columns are not negative.
template <int SPAN, int ROWS, int COLUMNS, int BYTES>
__device__ __forceinline__ int in_box_rows(int row, int column) {
  const uint32_t box = COLUMNS > SPAN ? uint32_t(column) / SPAN : 0, within = uint32_t(column) % SPAN;
  const int at = (row * SPAN + int(within)) * BYTES;
  return (at ^ (at >> 7 & (SPAN * BYTES / 16 - 1)) << 4) / BYTES + int(box) * ROWS * SPAN;
}

// primitive: copy_async_by; needs: copy_async
// What copy_async does, by the threads that take part: a branch around it would cost more. Every lane calls it.
// PTX ISA 9.7.9.25.3.1, cp.async.
template <class V>
__device__ __forceinline__ void copy_async_by(bool is_there, V* shared, const V* global, bool valid AND_LINE) {
  constexpr int BYTES = int(sizeof(V));
#ifndef TREADLE_EMULATOR
  const uint32_t target = shared_address(shared);
  const int read = valid ? BYTES : 0;
  if constexpr (BYTES == 16) {
    asm volatile(
        "{\n"
        ".reg .pred here;\n"
        "setp.ne.b32 here, %3, 0;\n"
        "@here cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
        "}" ::"r"(target),
        "l"(__cvta_generic_to_global(global)), "r"(read), "r"(int(is_there))
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred here;\n"
        "setp.ne.b32 here, %3, 0;\n"
        "@here cp.async.ca.shared.global [%0], [%1], %4, %2;\n"
        "}" ::"r"(target),
        "l"(__cvta_generic_to_global(global)), "r"(read), "r"(int(is_there)), "n"(BYTES)
        : "memory");
  }
#else
  if (is_there) return copy_async<BYTES>(shared, global, valid, line);
  emu::take_no_part(BYTES, true, line);
#endif
}

// primitive: copy_to_boxes; needs: advance, vec, box_order, in_box_rows, copy_async_by; from: sm_90
// Starts to copy a tile of ROWS x COLUMNS to boxes of SPAN columns (in_boxes), in the fewest sectors (box_order): what
// its array has, zeros in the rest. By vectors of 4 to 16 bytes; elements of a row are neighbours.
template <int WIDTH, int SPAN, int ROWS, int COLUMNS, int THREADS, class T>
__device__ __forceinline__ void copy_to_boxes(T* tile, const T* array, Part rows, Part columns, int64_t stride,
                                              int thread AND_LINE) {
  using Order = box_order<T, WIDTH, COLUMNS, THREADS>;
  constexpr int UNIT = Order::UNIT, BYTES = int(sizeof(T));
  Order order(array, columns, stride, true, thread);
  const bool has_gaps = order.is_near && columns.end < COLUMNS;
  UNROLL_1 for (; order.goes_on(thread); order.next()) {
    const T* from = array + order.line * stride + order.place;
    T* const to = tile + in_box_rows<SPAN, ROWS, COLUMNS, BYTES>(order.line, order.place);
    const bool inside = columns.has(order.place);
    UNROLL for (int down = 0; down < ROWS; down += UNIT) {
      const int row = order.line + down;
      const bool is_row = (down > 0 || row >= 0) && (ROWS % UNIT == 0 || row < ROWS);
      copy_async_by(order.is_there && is_row, vec<WIDTH>(to + down * SPAN), vec<WIDTH>(from),
                    inside && rows.has(row) AND_THIS_LINE);
      advance(from, UNIT * stride * BYTES);
    }
    if (ROWS % UNIT == 0 && order.is_split)
      copy_async_by(order.is_there && order.line < 0, vec<WIDTH>(to + ROWS * SPAN), vec<WIDTH>(from),
                    inside && rows.has(ROWS + order.line) AND_THIS_LINE);
  }
  if (has_gaps) {
    UNROLL_1 for (int slot = thread * WIDTH; slot < ROWS * COLUMNS; slot += Order::STEP) {
      const int row = slot / COLUMNS, column = slot % COLUMNS;
      copy_async_by(column >= columns.end, vec<WIDTH>(tile + in_boxes<SPAN, ROWS, BYTES>(row, column)),
                    vec<WIDTH>(array), false AND_THIS_LINE);
    }
  }
}

// primitive: store_lines_to_boxes; needs: advance, vec, box_order, in_box_rows, load_global_if, store_shared_if
// What copy_to_boxes does, by loads and stores, whose vectors may be narrower: LOADS of them are on their way together.
// TURNED: lines are columns, as those are what lies together.
template <int WIDTH, int SPAN, int ROWS, int COLUMNS, int THREADS, int LOADS, bool TURNED, class T>
__device__ __forceinline__ void store_lines_to_boxes(T* tile, const T* array, Part rows, Part columns, int64_t stride,
                                                     int64_t apart, int thread AND_LINE) {
  constexpr int LINES = TURNED ? COLUMNS : ROWS, BYTES = int(sizeof(T));
  using Order = box_order<T, WIDTH, TURNED ? ROWS : COLUMNS, THREADS>;
  constexpr int UNIT = Order::UNIT, UNITS = (LINES + UNIT - 1) / UNIT, TURNS = UNITS < LOADS ? UNITS : LOADS;
  constexpr int MOST = (UNIT * Order::PITCH + Order::STEP - 1) / Order::STEP, MANY = (LOADS + TURNS / 2) / TURNS;
  constexpr int PLACES = MANY < MOST ? MANY : MOST;
  const Part lines = TURNED ? columns : rows, places = TURNED ? rows : columns;
  // What follows from these is found here, and not before a loop: threads that copy have few registers.
  thread = kept(thread), stride = kept(stride), apart = kept(apart), array = kept(array);
  Order order(array, places, stride, apart == 1, thread);
  const bool has_gaps = order.is_near && places.end < (TURNED ? ROWS : COLUMNS);
  const int start = lines.begin < 0 ? 0 : lines.begin, end = lines.end < LINES ? lines.end : LINES;
  const int count = start < end ? end - start : 0;
  UNROLL_1 while (order.goes_on(thread)) {
    const bool is_split = order.is_split;
    int at_line[PLACES], at_place[PLACES];
    UNROLL for (int i = 0; i < PLACES; ++i) {
      at_line[i] = order.is_there ? order.line : LINES, at_place[i] = order.place;
      order.next();
    }
    UNROLL_1 for (int begin = 0; begin < LINES + is_split; begin += TURNS * UNIT) {
      Vec<T, WIDTH> came[PLACES][TURNS];
      UNROLL for (int i = 0; i < PLACES; ++i) {
        const T* from = array + (at_line[i] + begin) * stride + at_place[i] * apart;
        // So many lines, of which the compiler does not know that they are there: else it would store between loads.
        const uint32_t wanted = kept(places.has(at_place[i]) ? count : 0);
        UNROLL for (int turn = 0; turn < TURNS; ++turn) {
          const bool valid = uint32_t(at_line[i] + begin + turn * UNIT - start) < wanted;
          came[i][turn] = load_global_if(vec<WIDTH>(from), valid AND_THIS_LINE);
          advance(from, UNIT * stride * BYTES);
        }
      }
      UNROLL for (int i = 0; i < PLACES; ++i) {
        const int line_of = kept(at_line[i]) + begin, place_of = kept(at_place[i]);  // no sooner than loads have come
        const int down = TURNED ? 0 : in_box_rows<SPAN, ROWS, COLUMNS, BYTES>(line_of, place_of);
        UNROLL for (int turn = 0; turn < TURNS; ++turn) {
          const int at = line_of + turn * UNIT;
          const int to = TURNED ? in_box_rows<SPAN, ROWS, COLUMNS, BYTES>(place_of, at) : down + turn * UNIT * SPAN;
          store_shared_if(vec<WIDTH>(tile + to), came[i][turn], uint32_t(at) < uint32_t(LINES) AND_THIS_LINE);
        }
      }
    }
  }
  if (has_gaps) {
    UNROLL_1 for (int slot = thread * WIDTH; slot < ROWS * COLUMNS; slot += Order::STEP) {
      const int row = slot / COLUMNS, column = slot % COLUMNS;
      store_shared_if(vec<WIDTH>(tile + in_boxes<SPAN, ROWS, BYTES>(row, column)), Vec<T, WIDTH>{},
                      (TURNED ? row : column) >= places.end AND_THIS_LINE);
    }
  }
}

// primitive: store_to_boxes; needs: store_lines_to_boxes; from: sm_90
// The same by lines that lie together, if any do: rows, or columns of a transposed array.
template <int WIDTH, int SPAN, int ROWS, int COLUMNS, int THREADS, int LOADS, class T>
__device__ __forceinline__ void store_to_boxes(T* tile, const T* array, Part rows, Part columns, int64_t row_stride,
                                               int64_t column_stride, int thread AND_LINE) {
  if (row_stride == 1 && column_stride != 1) {
    store_lines_to_boxes<WIDTH, SPAN, ROWS, COLUMNS, THREADS, LOADS / 4 * 3, true>(  // whose addresses take registers
        tile, array, rows, columns, column_stride, row_stride, thread AND_THIS_LINE);
  } else {
    store_lines_to_boxes<WIDTH, SPAN, ROWS, COLUMNS, THREADS, LOADS, false>(  //
        tile, array, rows, columns, row_stride, column_stride, thread AND_THIS_LINE);
  }
}

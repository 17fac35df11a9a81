// RUN: xdsl-opt -p 'set-machine{name=a100},convert-hierarchy-to-cuda' --allow-unregistered-dialect --split-input-file %s | filecheck %s

// A product: tiles in shared memory, as deep as the instruction takes and rows without bank conflicts; blocks along the
// grouped axes, the last fastest; a loop over full pieces without a test for their end, and a last piece.

!A = tensor<?x?xf16, #diagram.array<[a, b]>>
!B = tensor<?x?xf16, #diagram.array<[b, c]>>
!C = tensor<?x?xf32, #diagram.array<[a, c]>>
!Ad = tensor<?x?xf16, #diagram.array<[a, b], level = device>>
!Bd = tensor<?x?xf16, #diagram.array<[b, c], level = device>>
!Cd = memref<?x?xf32, #diagram.array<[a, c], level = device>>
!At = tensor<32x8xf16, #diagram.array<[a, b], level = shared>>
!Bt = tensor<8x16xf16, #diagram.array<[b, c], level = shared>>
!Ct = tensor<32x16xf32, #diagram.array<[a, c], level = register>>

func.func @matmul(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<a = 64, b = 16, c = 32>} {
  %C = hierarchy.kernel @matmul (%Ad = %A : !A as !Ad, %Bd = %B : !B as !Bd) saves (%Cd : !Cd) -> (!C)
      schedule #hierarchy.schedule<group = [a = 32, c = 16], stream = [b = 8], warps = [a = 2]> {
    hierarchy.group [a = 32, c = 16] {
      %acc = hierarchy.stream [b = 8] -> (!Ct) initialise {
        %zero = diagram.fill 0.000000e+00 : f32 -> !Ct
        hierarchy.yield %zero : !Ct
      } step (%s : !Ct) {
        %At = hierarchy.load %Ad : !Ad -> !At
        %Bt = hierarchy.load %Bd : !Bd -> !Bt
        %next = diagram.contract %At, %Bt over [b] accumulate f32 into %s : !At, !Bt -> !Ct
        hierarchy.yield %next : !Ct
      } finish (%e : !Ct) {
        hierarchy.yield %e : !Ct
      }
      hierarchy.save %acc into %Cd : !Ct, !Cd
    }
    hierarchy.yield
  }
  func.return %C : !C
}

// CHECK: cuda.kernel @matmul_kernel (%Ad: memref<?x?xf16, {{.*}}[a, b], level = device>>, %Bd: {{.*}}, %Cd: {{.*}}, %a: index, %b: index, %c: index) threads 64 shared 768 resident 14 {
// CHECK-NEXT: %At_shared = cuda.shared at 0 : memref<32x8xf16, #diagram.array<[a, b], level = shared, layout = #cuda.rows<extents = [32, 8], pitch = 8>>>
// CHECK-NEXT: %Bt_shared = cuda.shared at 512 : memref<8x16xf16, #diagram.array<[b, c], level = shared, layout = #cuda.rows<extents = [8, 16], pitch = 16, swizzle = [1, 2]>>>
// CHECK-NEXT: %block = cuda.block_index
// CHECK: %c_pieces = arith.ceildivui %c, %{{.*}} : index
// CHECK: %c0 = arith.muli %{{.*}}, %{{.*}} : index
// CHECK: %a0 = arith.muli %{{.*}}, %{{.*}} : index
// CHECK-NEXT: %s = diagram.fill 0.000000e+00 : f32 -> tensor<32x16xf32, #diagram.array<[a, c], level = register, layout = #cuda.layout<register = [c:2:8, a:2:8, c:2:1], lane = [a:8:1, c:4:2], warp = [a:2:16]>>>
// CHECK: %[[REST:.*]] = arith.remui %b, %{{.*}} : index
// CHECK-NEXT: %b_full = arith.subi %b, %[[REST]] : index
// CHECK: %[[LOOP:.*]] = scf.for %b0 = %{{.*}} to %b_full step %{{.*}} iter_args(%[[STATE:.*]] = %s)
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.copy %Ad[%a0, %b0] into %At_shared bounds [a < %a] : memref<?x?xf16
// CHECK-NEXT: cuda.copy %Bd[%b0, %c0] into %Bt_shared bounds [c < %c] : memref<?x?xf16
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: %next = cuda.product %At_shared, %Bt_shared into %[[STATE]] over [b] using m16n8k16 :
// CHECK-NEXT: scf.yield %next :
// CHECK-NEXT: } {comment = "streaming: b in pieces of 8"}
// CHECK-NEXT: %[[MORE:.*]] = arith.cmpi ult, %b_full, %b : index
// CHECK-NEXT: %[[END:.*]] = scf.if %[[MORE]] ->
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.copy %Ad[%a0, %b_full] into %At_shared bounds [a < %a, b < %b] partial :
// CHECK-NEXT: cuda.copy %Bd[%b_full, %c0] into %Bt_shared bounds [b < %b, c < %c] partial :
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: %[[LAST:.*]] = cuda.product %At_shared, %Bt_shared into %[[LOOP]] over [b] using m16n8k16 :
// CHECK-NEXT: scf.yield %[[LAST]] :
// CHECK-NEXT: } else {
// CHECK-NEXT: scf.yield %[[LOOP]] :
// CHECK: cuda.store %[[END]] into %Cd[%a0, %c0] bounds [a < %a, c < %c] :

// The host allocates the result and launches a block for each combination of pieces.

// CHECK: func.func @matmul(%A: memref<{{.*}}>, %B: memref<{{.*}}>) -> memref<?x?xf32,
// CHECK: %a = memref.dim %A, %{{.*}}
// CHECK: %b = memref.dim %A, %{{.*}}
// CHECK: %c = memref.dim %B, %{{.*}}
// CHECK-NEXT: %C = memref.alloc(%a, %c) : memref<?x?xf32,
// CHECK-NEXT: %aligned = cuda.alignment %A, %B, %C :
// CHECK: %[[ROWS:.*]] = arith.ceildivui %a, %{{.*}} : index
// CHECK: %[[COLUMNS:.*]] = arith.ceildivui %c, %{{.*}} : index
// CHECK-NEXT: %blocks = arith.muli %[[ROWS]], %[[COLUMNS]] : index
// CHECK-NEXT: cuda.launch @matmul_kernel grid %blocks aligned %aligned(%A, %B, %C, %a, %b, %c) :
// CHECK-NEXT: func.return %C :

// -----

// A reduction: what lies outside becomes its neutral element, in the last piece and past the end of a static axis.

!X = tensor<?x5xf32, #diagram.array<[r, n]>>
!Xd = tensor<?x5xf32, #diagram.array<[r, n], level = device>>
!Yd = memref<?xf32, #diagram.array<[r], level = device>>
!Y = tensor<?xf32, #diagram.array<[r]>>
!x = tensor<4x5xf32, #diagram.array<[r, n], level = register>>
!y = tensor<4xf32, #diagram.array<[r], level = register>>

// CHECK: cuda.kernel @tops_kernel (%x: memref<?x5xf32, {{.*}}>, %y: memref<?xf32, {{.*}}>, %r: index) threads 32 shared 0 resident {{[0-9]+}} {
// CHECK: %[[X:.*]] = cuda.load %x[%r0, %{{.*}}] bounds [r < %r] : memref<?x5xf32, {{.*}} -> tensor<4x5xf32, {{.*}}#cuda.layout<register = [n:4:1], lane = [4, r:4:1, n:2:4], warp = []>>>
// CHECK: %[[N:.*]] = arith.constant 5 : index
// CHECK-NEXT: %[[M:.*]] = cuda.mask %[[X]] where n from %{{.*}} < %[[N]] else 0xff800000 : f32 :
// CHECK-NEXT: %[[Y:.*]] = diagram.reduce max %[[M]] over [n] : tensor<4x5xf32,
// CHECK: cuda.store %[[Y]] into %y[%r0] bounds [r < %r] :
func.func @tops(%X: !X) -> !Y {
  %Y = hierarchy.kernel @tops (%x = %X : !X as !Xd) saves (%y: !Yd) -> (!Y)
      schedule #hierarchy.schedule<group = [r = 4], whole = [n = 5], warps = [r = 1]> {
    hierarchy.group [r = 4] {
      %a = hierarchy.load %x : !Xd -> !x
      %top = diagram.reduce max %a over [n] : !x -> !y
      hierarchy.save %top into %y : !y, !Yd
    }
    hierarchy.yield
  }
  func.return %Y : !Y
}

// -----

// What a condition leaves of an axis along which lanes have many elements is one mask, with ends of its own for each row,
// and the end of the array is one of them. What it says of data along that axis is a test of each element.

!S = tensor<?x1000xf32, #diagram.array<[q, x]>>
!Sd = tensor<?x1000xf32, #diagram.array<[q, x], level = device>>
!id = tensor<1000xi32, #diagram.array<[x], level = device>>
!i = tensor<1000xi32, #diagram.array<[x]>>
!Yd = memref<?xf32, #diagram.array<[q], level = device>>
!Y = tensor<?xf32, #diagram.array<[q]>>
!s = tensor<4x1000xf32, #diagram.array<[q, x], level = register>>
!ids = tensor<1000xi32, #diagram.array<[x], level = register>>
!y = tensor<4xf32, #diagram.array<[q], level = register>>

// CHECK: cuda.kernel @rows_kernel (%s: memref<?x1000xf32, {{.*}}>, %o: memref<1000xi32, {{.*}}>, %most: i32, %y: memref<?xf32, {{.*}}>, %q: index)
// CHECK: %[[A:.*]] = cuda.load %s[%q0, %{{.*}}] bounds [q < %q] :
// CHECK-NEXT: %at_q = cuda.index %q0 ->
// CHECK: %x_begins = diagram.map (%[[Q:.*]] = %at_q :
// CHECK-NEXT: %[[SEVEN:.*]] = arith.constant -7 : i32
// CHECK-NEXT: %[[FROM:.*]] = arith.addi %[[Q]], %[[SEVEN]] overflow<nsw> : i32
// CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0 : i32
// CHECK-NEXT: %[[AT_LEAST:.*]] = arith.maxsi %[[FROM]], %[[ZERO]] : i32
// CHECK-NEXT: diagram.yield %[[AT_LEAST]] : i32
// CHECK: %x_ends = diagram.map (%{{.*}} = %at_q : {{.*}}, %{{.*}} = %most : i32)
// CHECK: arith.addi %{{.*}}, %{{.*}} overflow<nsw> : index
// CHECK: %[[MOST:.*]] = arith.constant 2147483647 : index
// CHECK-NEXT: %[[END:.*]] = arith.minsi %{{.*}}, %[[MOST]] : index
// CHECK-NEXT: %[[NARROW:.*]] = arith.index_cast %[[END]] : index to i32
// CHECK-NEXT: diagram.yield %[[NARROW]] : i32
// CHECK: %[[M:.*]] = cuda.mask %[[A]] where x from %{{.*}} >= %x_begins < %x_ends else 0xff800000 : f32 : tensor<4x1000xf32,
// CHECK-NEXT: %w = diagram.map (%{{.*}} = %[[M]] : {{.*}}, %{{.*}} = %b :
// CHECK: arith.cmpi sle,
// CHECK: arith.select
func.func @rows(%S: !S, %of: !i, %n: i32) -> !Y {
  %Y = hierarchy.kernel @rows (%s = %S : !S as !Sd, %o = %of : !i as !id, %most = %n : i32 as i32) saves (%y: !Yd) -> (!Y)
      schedule #hierarchy.schedule<group = [q = 4], whole = [x = 1000], warps = [q = 4]> {
    hierarchy.group [q = 4] {
      %a = hierarchy.load %s : !Sd -> !s
      %b = hierarchy.load %o : !id -> !ids
      %w = diagram.where %a if "q - 7 <= x and x <= q + n and of[x] == 1" with (n = %most : i32, of = %b : !ids) : !s
      %top = diagram.reduce max %w over [x] : !s -> !y
      hierarchy.save %top into %y : !y, !Yd
    }
    hierarchy.yield
  }
  func.return %Y : !Y
}

// -----

// A quotient of what varies along a row is solved for it, so that it limits the mask; that of the row is rounded down.
// Remainders are tested, by their lowest bits where they are of a power of two.

!S = tensor<?x1000xf32, #diagram.array<[q, x]>>
!Sd = tensor<?x1000xf32, #diagram.array<[q, x], level = device>>
!Yd = memref<?xf32, #diagram.array<[q], level = device>>
!Y = tensor<?xf32, #diagram.array<[q]>>
!s = tensor<4x1000xf32, #diagram.array<[q, x], level = register>>
!y = tensor<4xf32, #diagram.array<[q], level = register>>

// CHECK: cuda.kernel @blocks_kernel
// CHECK: %at_q = cuda.index %q0 ->
// CHECK: %at_x = cuda.index %{{.*}} ->
// CHECK: %x_begins = diagram.map (%[[ROW:.*]] = %at_q :
// CHECK-NEXT: %[[TWELVE:.*]] = arith.constant 12 : i32
// CHECK-NEXT: %[[BLOCK:.*]] = arith.floordivsi %[[ROW]], %[[TWELVE]] : i32
// CHECK-NEXT: %[[LENGTH:.*]] = arith.constant 12 : i32
// CHECK-NEXT: arith.muli %[[BLOCK]], %[[LENGTH]] overflow<nsw> : i32
// CHECK: %[[M:.*]] = cuda.mask %{{.*}} where x from %{{.*}} >= %x_begins < %{{.*}} else 0xff800000 : f32
// CHECK: %w = diagram.map (%{{.*}} = %[[M]] : {{.*}}, %[[Q:.*]] = %at_q : {{.*}}, %[[X:.*]] = %at_x :
// CHECK-NEXT: %[[APART:.*]] = arith.subi %[[Q]], %[[X]] overflow<nsw> : i32
// CHECK-NEXT: %[[BITS:.*]] = arith.constant 127 : i32
// CHECK-NEXT: %[[REST:.*]] = arith.andi %[[APART]], %[[BITS]] : i32
// CHECK-NEXT: %[[NONE:.*]] = arith.constant 0 : i32
// CHECK-NEXT: arith.cmpi sle, %[[REST]], %[[NONE]] : i32
// CHECK: %[[TEN:.*]] = arith.constant 10 : i32
// CHECK-NEXT: %[[TENTH:.*]] = arith.floordivsi %[[X]], %[[TEN]] : i32
// CHECK-NEXT: %[[BELOW:.*]] = arith.muli %[[TENTH]], %[[TEN]] overflow<nsw> : i32
// CHECK-NEXT: arith.subi %[[X]], %[[BELOW]] overflow<nsw> : i32
func.func @blocks(%S: !S) -> !Y {
  %Y = hierarchy.kernel @blocks (%s = %S : !S as !Sd) saves (%y: !Yd) -> (!Y)
      schedule #hierarchy.schedule<group = [q = 4], whole = [x = 1000], warps = [q = 4]> {
    hierarchy.group [q = 4] {
      %a = hierarchy.load %s : !Sd -> !s
      %w = diagram.where %a if "q // 12 - x // 12 <= 1 and ((q - x) % 128 == 0 or x % 10 < 3)" : !s
      %top = diagram.reduce max %w over [x] : !s -> !y
      hierarchy.save %top into %y : !y, !Yd
    }
    hierarchy.yield
  }
  func.return %Y : !Y
}

// -----

// A function without kernels stays as it is; laws are used up.

// CHECK-NOT: diagram.law
// CHECK: func.func @scalar(%x: f32) -> f32 {
// CHECK-NEXT: func.return %x : f32
diagram.law @same over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> tensor<?xf32, #diagram.array<[x]>> {
  diagram.yield %v : tensor<?xf32, #diagram.array<[x]>>
}
func.func @scalar(%x: f32) -> f32 {
  func.return %x : f32
}

// -----

// An operation of another dialect stays between kernels, on the tensors that it had; an axis that only its result has gets its
// size from there.

!X = tensor<?xf32, #diagram.array<[n]>>
!Xd = tensor<?xf32, #diagram.array<[n], level = device>>
!Yd = memref<?xf32, #diagram.array<[n], level = device>>
!t = tensor<4xf32, #diagram.array<[n], level = register>>

// CHECK: cuda.kernel @double_kernel
// CHECK: func.func @between(%X: memref<?xf32, {{.*}}>, %plain: tensor<3xi32>) -> memref<?xf32,
// CHECK: %[[X:.*]] = builtin.unrealized_conversion_cast %X : memref<?xf32, {{.*}}> to tensor<?xf32, #diagram.array<[m]>>
// CHECK-NEXT: %A = "other.compress"(%[[X]], %plain) : (tensor<?xf32, #diagram.array<[m]>>, tensor<3xi32>) -> tensor<?xf32, #diagram.array<[n]>>
// CHECK-NEXT: %[[A:.*]] = builtin.unrealized_conversion_cast %A : tensor<?xf32, #diagram.array<[n]>> to memref<?xf32,
// CHECK: %n = memref.dim %[[A]], %{{.*}}
// CHECK-NEXT: %Y = memref.alloc(%n)
// CHECK: cuda.launch @double_kernel grid %blocks aligned %aligned(%[[A]], %Y, %n) :
// CHECK-NEXT: func.return %Y
func.func @between(%X: tensor<?xf32, #diagram.array<[m]>>, %plain: tensor<3xi32>) -> !X {
  %A = "other.compress"(%X, %plain) : (tensor<?xf32, #diagram.array<[m]>>, tensor<3xi32>) -> !X
  %Y = hierarchy.kernel @double (%x = %A : !X as !Xd) saves (%y: !Yd) -> (!X)
      schedule #hierarchy.schedule<group = [n = 4], warps = [n = 1]> {
    hierarchy.group [n = 4] {
      %a = hierarchy.load %x : !Xd -> !t
      %b = diagram.map (%v = %a : !t) -> !t {
        %w = arith.addf %v, %v : f32
        diagram.yield %w : f32
      }
      hierarchy.save %b into %y : !t, !Yd
    }
    hierarchy.yield
  }
  func.return %Y : !X
}

// -----

// A row that several warps share: each reduces its part, writes it to shared memory, and reads the parts of all.

!A = tensor<?x1024xf32, #diagram.array<[row, x]>>
!Ad = tensor<?x1024xf32, #diagram.array<[row, x], level = device>>
!m = tensor<?xf32, #diagram.array<[row]>>
!md = memref<?xf32, #diagram.array<[row], level = device>>
!At = tensor<2x1024xf32, #diagram.array<[row, x], level = register>>
!mt = tensor<2xf32, #diagram.array<[row], level = register>>

func.func @maxima(%A: !A) -> !m attributes {sizes = #diagram.sizes<row = 8>} {
  %m = hierarchy.kernel @maxima (%Ad = %A : !A as !Ad) saves (%md : !md) -> (!m)
      schedule #hierarchy.schedule<group = [row = 2], whole = [x = 1024], warps = [row = 2, x = 4]> {
    hierarchy.group [row = 2] {
      %At = hierarchy.load %Ad : !Ad -> !At
      %mt = diagram.reduce max %At over [x] : !At -> !mt
      hierarchy.save %mt into %md : !mt, !md
    }
    hierarchy.yield
  }
  func.return %m : !m
}

// CHECK: cuda.kernel @maxima_kernel ({{.*}}) threads 256 shared 128 resident 8 {
// CHECK-NEXT: %mt_shared = cuda.shared at 0 : memref<2x4xf32, #diagram.array<[row, x_warp], level = shared, layout = #cuda.rows<extents = [2, 4], pitch = 4>>>
// CHECK: %At = cuda.load %Ad[%row0, %{{.*}}] bounds [row < %row] : memref<?x1024xf32, {{.*}}layout = #cuda.layout<register = [x:2:512, x:4:1], lane = [x:32:4], warp = [row:2:1, x:4:128]>>>
// CHECK-NEXT: %mt = diagram.reduce max %At over [x] {partial} : {{.*}} -> tensor<2xf32, #diagram.array<[row], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [row:2:1, 4]>>>
// CHECK-NEXT: %mt_1 = cuda.combine max %mt lanes [1, 2, 4, 8, 16] : tensor<2xf32,
// CHECK-NEXT: %mt_2 = cuda.parts %mt_1 : tensor<2xf32, {{.*}} -> tensor<2x4xf32, #diagram.array<[row, x_warp], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [row:2:1, x_warp:4:1]>>>
// CHECK-NEXT: cuda.write %mt_2 into %mt_shared : tensor<2x4xf32,
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: %mt_3 = cuda.read %mt_shared : {{.*}} -> tensor<2x4xf32, #diagram.array<[row, x_warp], level = register, layout = #cuda.layout<register = [x_warp:4:1], lane = [32], warp = [row:2:1, 4]>>>
// CHECK-NEXT: %mt_4 = diagram.reduce max %mt_3 over [x_warp] : tensor<2x4xf32, {{.*}} -> tensor<2xf32,
// CHECK-NEXT: cuda.store %mt_4 into %md[%row0] bounds [row < %row] : tensor<2xf32,

// -----

// Pieces that a table leaves: each thread asks of one, in two cells, and the block lists those that count. Turns of a
// loop look up where theirs begins; behind what the list has room for all are fed.

!A = tensor<?x?xf32, #diagram.array<[i, j]>>
!Ad = tensor<?x?xf32, #diagram.array<[i, j], level = device>>
!b = tensor<?x?xi32, #diagram.array<[k, l]>>
!B = tensor<?x?xi32, #diagram.array<[i, j]>>
!Bd = tensor<?x?xi32, #diagram.array<[i, j], level = device>>
!m = tensor<?xf32, #diagram.array<[i]>>
!md = memref<?xf32, #diagram.array<[i], level = device>>
!At = tensor<1x32xf32, #diagram.array<[i, j], level = register>>
!mt = tensor<1xf32, #diagram.array<[i], level = register>>

func.func @blocks(%A: !A, %table: !b) -> !m attributes {sizes = #diagram.sizes<i = 8, j = 100, k = 8, l = 7>} {
  %B = diagram.read %table at "i, j // 16" padded : !b -> !B
  %m = hierarchy.kernel @blocks (%Ad = %A : !A as !Ad, %Bd = %B : !B as !Bd) saves (%md : !md) -> (!m)
      schedule #hierarchy.schedule<group = [i = 1], stream = [j = 32], warps = [i = 1]> {
    hierarchy.group [i = 1] {
      %zero = arith.constant 0 : index
      %j0, %j_end = hierarchy.piece "j" : index, index
      %pieces = hierarchy.select [j = 32] from %zero to %j_end if "b[i, j] == 1" with (b = %Bd : !Bd) cells [i = 1, j = 16] room 64
      %mt = hierarchy.stream [j = 32] from %zero to %j_end among %pieces -> (!mt) initialise {
        %start = diagram.fill 0xFF800000 : f32 -> !mt
        hierarchy.yield %start : !mt
      } step (%so_far: !mt) {
        %At = hierarchy.load %Ad : !Ad -> !At
        %new = diagram.reduce max %At over [j] into %so_far : !At -> !mt
        hierarchy.yield %new : !mt
      } finish (%end: !mt) {
        hierarchy.yield %end : !mt
      }
      hierarchy.save %mt into %md : !mt, !md
    }
    hierarchy.yield
  }
  func.return %m : !m
}

// CHECK: cuda.kernel @blocks_kernel
// CHECK-NEXT: %pieces_shared = cuda.shared at 0 : memref<128xi32, #diagram.array<[j], level = shared, layout = #cuda.rows<extents = [128], pitch = 128>>>
// CHECK: %j_unknown = arith.addi %[[first:.*]], %{{.*}} : index
// CHECK: %[[end:.*]] = arith.minsi %{{.*}}, %j_unknown : index
// CHECK: %selected = cuda.select %pieces_shared from %[[first]] to %[[end]] step 32 (%j0: index) {
// CHECK-NEXT: %[[one:.*]] = cuda.load %Bd[%i0, %j0] bounds [j < %j] inside "i, j // 16" of [%k, %l]
// CHECK: %[[next:.*]] = arith.addi %j0, %{{.*}} : index
// CHECK-NEXT: %[[other:.*]] = cuda.load %Bd[%i0, %[[next]]] bounds [j < %j] inside "i, j // 16" of [%k, %l]
// CHECK: %[[there:.*]] = arith.cmpi slt, %[[next]], %j : index
// CHECK-NEXT: %[[both:.*]] = arith.andi %{{.*}}, %[[there]] : i1
// CHECK-NEXT: %[[any:.*]] = arith.ori %{{.*}}, %[[both]] : i1
// CHECK-NEXT: cuda.keep %[[any]]
// CHECK: %j_turns = arith.addi %selected, %{{.*}} : index
// CHECK: cuda.barrier
// CHECK-NEXT: %turns = cuda.selected_before %pieces_shared[%j_full] of %selected
// CHECK: scf.for %turn = %{{.*}} to %turns step %{{.*}} iter_args(
// CHECK: %j0 = cuda.selected %pieces_shared[%turn] step 32 of %selected then %j_unknown
// CHECK: cuda.load %Ad[%i0, %j0] :
// CHECK: scf.for %turn_1 = %turns to %j_turns step
// CHECK: %j0_1 = cuda.selected %pieces_shared[%turn_1] step 32 of %selected then %j_unknown
// CHECK: cuda.load %Ad[%i0, %j0_1] bounds [j < %j]

// -----

// An array that is read where data say: the kernel is given what it is read from and the entries, and the tile says where
// its elements lie.

!Pages = tensor<?x16x64xf16, #diagram.array<[p, s, d]>>
!table = tensor<?xi32, #diagram.array<[m]>>
!X = tensor<?x64xf16, #diagram.array<[x, d]>>
!Xd = tensor<?x64xf16, #diagram.array<[x, d], level = device>>
!Xt = tensor<32x64xf16, #diagram.array<[x, d], level = register>>
!xd = memref<?x64xf16, #diagram.array<[x, d], level = device>>
func.func @pages(%pages: !Pages, %table: !table) -> !X {
  %X = diagram.read %pages at "table[x // 16], x % 16, d" padded with (table = %table : !table) : !Pages -> !X
  %Y = hierarchy.kernel @pages (%Xd = %X : !X as !Xd) saves (%Yd: !xd) -> (!X)
      schedule #hierarchy.schedule<group = [x = 32], whole = [d = 64], warps = [x = 4]> {
    hierarchy.group [x = 32] {
      %Xt = hierarchy.load %Xd : !Xd -> !Xt
      %Yt = diagram.map (%a = %Xt : !Xt) -> !Xt {
        %b = arith.addf %a, %a : f16
        diagram.yield %b : f16
      }
      hierarchy.save %Yt into %Yd : !Xt, !xd
    }
    hierarchy.yield
  }
  func.return %Y : !X
}

// CHECK: cuda.kernel @pages_kernel (%pages: memref<?x16x64xf16, strided<[?, ?, 1], offset: ?>, #diagram.array<[p, s, d], level = device>>, %Yd: memref<?x64xf16, {{.*}}>, %x: index, %p: index, %table: memref<?xi32, strided<[1], offset: ?>, #diagram.array<[m], level = device>>)
// CHECK: cuda.load %pages[%x0, %{{.*}}] at "table[x // 16], x % 16, d" with (table = %table : memref<?xi32, {{.*}}>) bounds [x < %x] inside "table[x // 16]" of [%p] : memref<?x16x64xf16,
// CHECK: func.func @pages(
// CHECK: %x = arith.muli %m, %{{.*}} : index
// CHECK: cuda.alignment %pages, %Y, %table
// CHECK: cuda.launch @pages_kernel grid %blocks aligned %aligned(%pages, %Y, %x, %p, %table)

// -----

// A scan: one warp has each row, elements that are not there are neutral, and what it begins with has the warp's rows.

!X = tensor<?x200xf32, #diagram.array<[i, j]>>
!Xd = tensor<?x200xf32, #diagram.array<[i, j], level = device>>
!Yd = memref<?x200xf32, #diagram.array<[i, j], level = device>>
!Xt = tensor<8x200xf32, #diagram.array<[i, j], level = register>>
!r = tensor<8xf32, #diagram.array<[i], level = register>>

func.func @scan(%X: !X) -> !X attributes {sizes = #diagram.sizes<i = 64, j = 200>} {
  %C = hierarchy.kernel @scan (%Xd = %X : !X as !Xd) saves (%Yd : !Yd) -> (!X)
      schedule #hierarchy.schedule<group = [i = 8], whole = [j = 200], warps = [i = 8]> {
    hierarchy.group [i = 8] {
      %x = hierarchy.load %Xd : !Xd -> !Xt
      %m = diagram.reduce max %x over [j] : !Xt -> !r
      %C = diagram.scan add %x over j exclusive reverse into %m : !Xt, !r -> !Xt
      hierarchy.save %C into %Yd : !Xt, !Yd
    }
    hierarchy.yield
  }
  func.return %C : !X
}

// CHECK: cuda.kernel @scan_kernel (
// CHECK: %x = cuda.load %Xd[%i0, %{{.*}}] bounds [i < %i] : {{.*}} -> tensor<8x200xf32, #diagram.array<[i, j], level = register, layout = #cuda.layout<register = [j:2:128, j:4:1], lane = [j:32:4], warp = [i:8:1]>>>
// CHECK: %m = diagram.reduce max %{{.*}} over [j]
// CHECK: %[[THERE:.*]] = cuda.mask %x where j from %{{.*}} < %{{.*}} else 0.000000e+00 : f32
// CHECK-NEXT: %C = diagram.scan add %[[THERE]] over j exclusive reverse into %m : {{.*}}, tensor<8xf32, #diagram.array<[i], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [i:8:1]>>> -> tensor<8x200xf32,
// CHECK: cuda.store %C into %Yd[%i0, %{{.*}}] bounds [i < %i]

// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | filecheck %s --check-prefix=GENERIC

!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!m = tensor<?xf32, #diagram.array<[q]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!F = tensor<4x8xf32, #diagram.array<[i, k]>>
!G = tensor<8x4xf32, #diagram.array<[k, j]>>
!H = tensor<4x4xf32, #diagram.array<[i, j]>>
!n = tensor<4xi32, #diagram.array<[i]>>
!scalar = tensor<f32, #diagram.array<[]>>
!near = tensor<4xf32, #diagram.array<[i], level = register>>
!laid = tensor<4xf32, #diagram.array<[i], level = shared, layout = "rows">>

// Neighbours that share a reciprocal, and any elements of a thread whose divisors pass a test.

// CHECK-LABEL: func.func @shared
// CHECK: math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<k = 4>} : f32
// CHECK: arith.divf %one, %s fastmath<arcp> {diagram.shared = #diagram.sizes<i = 2>} : f32
// CHECK: arith.divf %s, %s fastmath<arcp> {diagram.shared = 4 : i64} : f32
func.func @shared(%F: !F) -> (!F, !F, !F) {
  %T = diagram.map (%s = %F : !F) -> !F {
    %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<k = 4>} : f32
    diagram.yield %t : f32
  }
  %R = diagram.map (%s = %F : !F) -> !F {
    %one = arith.constant 1.0 : f32
    %r = arith.divf %one, %s fastmath<arcp> {diagram.shared = #diagram.sizes<i = 2>} : f32
    diagram.yield %r : f32
  }
  %Q = diagram.map (%s = %F : !F) -> !F {
    %q = arith.divf %s, %s fastmath<arcp> {diagram.shared = 4 : i64} : f32
    diagram.yield %q : f32
  }
  func.return %T, %R, %Q : !F, !F, !F
}

// Products, plainly, into an array, and as tf32.

// CHECK-LABEL: func.func @contract
// CHECK-SAME: attributes {sizes = #diagram.sizes<q = 200, x = 333>}
// CHECK-NEXT: %S = diagram.contract %Q, %K over [d] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %T = diagram.contract %Q, %K over [d] accumulate f32 into %S : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %U = diagram.contract %F, %G over [k] accumulate f32 as tf32 : tensor<4x8xf32, #diagram.array<[i, k]>>, tensor<8x4xf32, #diagram.array<[k, j]>> -> tensor<4x4xf32, #diagram.array<[i, j]>>
// CHECK-NEXT: func.return %T : tensor<?x?xf32, #diagram.array<[q, x]>>

// GENERIC: %S = "diagram.contract"(%Q, %K) <{over = ["d"], accumulate = f32}> : (tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>>
// GENERIC-NEXT: %T = "diagram.contract"(%Q, %K, %S) <{over = ["d"], accumulate = f32}>
// GENERIC-NEXT: %U = "diagram.contract"(%F, %G) <{over = ["k"], accumulate = f32, multiply = "tf32"}>
func.func @contract(%Q: !Q, %K: !K, %F: !F, %G: !G) -> !S
    attributes {sizes = #diagram.sizes<q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.contract %Q, %K over [d] accumulate f32 into %S : !Q, !K -> !S
  %U = diagram.contract %F, %G over [k] accumulate f32 as tf32 : !F, !G -> !H
  func.return %T : !S
}

// CHECK-LABEL: func.func @reduce
// CHECK-NEXT: %m = diagram.reduce max %S over [x] : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT: %l = diagram.reduce add %S over [x] into %m : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT: %all = diagram.reduce min %S over [q, x] : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<f32, #diagram.array<[]>>
// GENERIC: "diagram.reduce"(%S) <{kind = "max", over = ["x"]}>
func.func @reduce(%S: !S) -> !m {
  %m = diagram.reduce max %S over [x] : !S -> !m
  %l = diagram.reduce add %S over [x] into %m : !S -> !m
  %all = diagram.reduce min %S over [q, x] : !S -> !scalar
  func.return %l : !m
}

// CHECK-LABEL: func.func @scan
// CHECK-NEXT: %t = diagram.reduce add %S over [x] : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT: %a = diagram.scan add %S over x : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %b = diagram.scan max %a over q exclusive : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %c = diagram.scan min %b over x reverse into %m : tensor<?x?xf32, #diagram.array<[q, x]>>, tensor<?xf32, #diagram.array<[q]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %d = diagram.scan add %S over x exclusive reverse total %t into %m {note = "kept"} : tensor<?x?xf32, #diagram.array<[q, x]>>, tensor<?xf32, #diagram.array<[q]>>, tensor<?xf32, #diagram.array<[q]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %e = diagram.scan mul %P over x : tensor<?x?xf16, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// GENERIC: "diagram.scan"(%S) <{kind = "add", axis = "x", operandSegmentSizes = array<i32: 1, 0, 0>}>
// GENERIC: "diagram.scan"(%a) <{kind = "max", axis = "q", exclusive, operandSegmentSizes = array<i32: 1, 0, 0>}>
// GENERIC: "diagram.scan"(%b, %m) <{kind = "min", axis = "x", reverse, operandSegmentSizes = array<i32: 1, 0, 1>}>
// GENERIC: "diagram.scan"(%S, %t, %m) <{kind = "add", axis = "x", exclusive, reverse, operandSegmentSizes = array<i32: 1, 1, 1>}>
func.func @scan(%S: !S, %m: !m, %P: !P) -> !S {
  %t = diagram.reduce add %S over [x] : !S -> !m
  %a = diagram.scan add %S over x : !S -> !S
  %b = diagram.scan max %a over q exclusive : !S -> !S
  %c = diagram.scan min %b over x reverse into %m : !S, !m -> !S
  %d = diagram.scan add %S over x exclusive reverse total %t into %m {note = "kept"} : !S, !m, !m -> !S
  %e = diagram.scan mul %P over x : !P -> !S
  func.return %d : !S
}

// CHECK-LABEL: func.func @random
// CHECK:        %w = diagram.random 32 of %k at %i, %i : i32
// CHECK-NEXT:   %b = diagram.random 16 of %w at %i, %j {note = "kept"} : i32
// GENERIC: %b = "diagram.random"(%w, %i, %j) <{bits = 16 : i32}> {note = "kept"} : (i32, i32, i32) -> i32
func.func @random(%key: tensor<i32, #diagram.array<[]>>, %I: tensor<?xi32, #diagram.array<[q]>>, %J: tensor<?xi32, #diagram.array<[x]>>) -> tensor<?x?xi32, #diagram.array<[q, x]>> {
  %R = diagram.map (%k = %key : tensor<i32, #diagram.array<[]>>, %i = %I : tensor<?xi32, #diagram.array<[q]>>, %j = %J : tensor<?xi32, #diagram.array<[x]>>) -> tensor<?x?xi32, #diagram.array<[q, x]>> {
    %w = diagram.random 32 of %k at %i, %i : i32
    %b = diagram.random 16 of %w at %i, %j {note = "kept"} : i32
    diagram.yield %b : i32
  }
  func.return %R : tensor<?x?xi32, #diagram.array<[q, x]>>
}

// The maximum is broadcast along x; the bodies are scalar.

// CHECK-LABEL: func.func @map
// CHECK-NEXT: %E = diagram.map (%s = %S : tensor<?x?xf32, #diagram.array<[q, x]>>, %r = %m : tensor<?xf32, #diagram.array<[q]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>> {
// CHECK-NEXT:   %shifted = arith.subf %s, %r : f32
// CHECK-NEXT:   %p = math.exp %shifted : f32
// CHECK-NEXT:   diagram.yield %p : f32
// CHECK-NEXT: }
// CHECK-NEXT: %P = diagram.cast %E : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf16, #diagram.array<[q, x]>>
// GENERIC: %E = "diagram.map"(
// GENERIC-NEXT: ^bb{{[0-9]+}}(%s: f32, %r: f32):
func.func @map(%S: !S, %m: !m) -> !P {
  %E = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
    %shifted = arith.subf %s, %r : f32
    %p = math.exp %shifted : f32
    diagram.yield %p : f32
  }
  %P = diagram.cast %E : !S -> !P
  func.return %P : !P
}

// CHECK-LABEL: func.func @index
// CHECK-NEXT: %i = diagram.index {note = "kept"} -> tensor<4xi32, #diagram.array<[i]>>
// GENERIC: %i = "diagram.index"() {note = "kept"} : () -> tensor<4xi32, #diagram.array<[i]>>
func.func @index() -> !n {
  %i = diagram.index {note = "kept"} -> !n
  func.return %i : !n
}

// CHECK-LABEL: func.func @where
// CHECK-NEXT: %A = diagram.where %S if "x <= q" : tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %B = diagram.where %A if "first[q] <= x < 2 * n or x == 3" with (first = %first : tensor<?xi32, #diagram.array<[q]>>, n = %n : i32) {note = "kept"} : tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %C = diagram.where %B if "x <= q and ((q - x) % 128 == 0 or q // 16 - x // 32 <= n % 4)" with (n = %n : i32) : tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %D = diagram.where %C if "x % 3 == n" within "x < 9" throughout "first[q] <= x" with (n = %n : i32, first = %first : tensor<?xi32, #diagram.array<[q]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
// GENERIC: %A = "diagram.where"(%S) <{condition = #diagram.condition<"x <= q">, names = []}> : (tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>>
// GENERIC: %B = "diagram.where"(%A, %first, %n) <{condition = #diagram.condition<"first[q] <= x < 2 * n or x == 3">, names = ["first", "n"]}> {note = "kept"} :
// GENERIC: %C = "diagram.where"(%B, %n) <{condition = #diagram.condition<"x <= q and ((q - x) % 128 == 0 or q // 16 - x // 32 <= n % 4)">, names = ["n"]}> :
// GENERIC: %D = "diagram.where"(%C, %n, %first) <{condition = #diagram.condition<"x % 3 == n">, within = #diagram.condition<"x < 9">, throughout = #diagram.condition<"first[q] <= x">, names = ["n", "first"]}> :
func.func @where(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %first: tensor<?xi32, #diagram.array<[q]>>, %n: i32) {
  %A = diagram.where %S if "x <= q" : tensor<?x?xf32, #diagram.array<[q, x]>>
  %B = diagram.where %A if "first[q] <= x < 2 * n or x == 3" with (first = %first : tensor<?xi32, #diagram.array<[q]>>, n = %n : i32) {note = "kept"} : tensor<?x?xf32, #diagram.array<[q, x]>>
  %C = diagram.where %B if "x <= q and ((q - x) % 128 == 0 or q // 16 - x // 32 <= n % 4)" with (n = %n : i32) : tensor<?x?xf32, #diagram.array<[q, x]>>
  %D = diagram.where %C if "x % 3 == n" within "x < 9" throughout "first[q] <= x" with (n = %n : i32, first = %first : tensor<?xi32, #diagram.array<[q]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// CHECK-LABEL: func.func @read
// CHECK-NEXT: %W = diagram.read %X at "2 * t + r, c" {note = "kept"} : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
// GENERIC: %W = "diagram.read"(%X) <{place = #diagram.place<"2 * t + r, c">}> {note = "kept"} : (tensor<?x?xf32, #diagram.array<[l, c]>>) -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
func.func @read(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>> {
  %W = diagram.read %X at "2 * t + r, c" {note = "kept"} : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return %W : tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
}

// CHECK-LABEL: func.func @read_padded
// CHECK-NEXT: %W = diagram.read %X at "l - 2 * r - 1, c" padded {note = "kept"} : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[l, r, c]>>
// GENERIC: %W = "diagram.read"(%X) <{place = #diagram.place<"l - 2 * r - 1, c">, padded}> {note = "kept"} :
func.func @read_padded(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) -> tensor<?x8x?xf32, #diagram.array<[l, r, c]>> {
  %W = diagram.read %X at "l - 2 * r - 1, c" padded {note = "kept"} : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[l, r, c]>>
  func.return %W : tensor<?x8x?xf32, #diagram.array<[l, r, c]>>
}

// CHECK-LABEL: func.func @read_at_entries
// CHECK-NEXT: %W = diagram.read %X at "2 * n[t // 8, c] - 1, t % 8" padded with (n = %n : tensor<?x?xi32, #diagram.array<[m, k]>>) {note = "kept"} : tensor<?x8xf32, #diagram.array<[p, s]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
// GENERIC: %W = "diagram.read"(%X, %n) <{place = #diagram.place<"2 * n[t // 8, c] - 1, t % 8">, padded, names = ["n"]}> {note = "kept"} :
func.func @read_at_entries(%X: tensor<?x8xf32, #diagram.array<[p, s]>>, %n: tensor<?x?xi32, #diagram.array<[m, k]>>) -> tensor<?x?xf32, #diagram.array<[t, c]>> {
  %W = diagram.read %X at "2 * n[t // 8, c] - 1, t % 8" padded with (n = %n : tensor<?x?xi32, #diagram.array<[m, k]>>) {note = "kept"} : tensor<?x8xf32, #diagram.array<[p, s]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return %W : tensor<?x?xf32, #diagram.array<[t, c]>>
}

// CHECK-LABEL: func.func @read_at_quotients
// CHECK-NEXT: %W = diagram.read %X at "2 * (t // 8) + 1, c // 4" padded {note = "kept"} : tensor<?x?xf32, #diagram.array<[l, k]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
// GENERIC: %W = "diagram.read"(%X) <{place = #diagram.place<"2 * (t // 8) + 1, c // 4">, padded}> {note = "kept"} :
func.func @read_at_quotients(%X: tensor<?x?xf32, #diagram.array<[l, k]>>) -> tensor<?x?xf32, #diagram.array<[t, c]>> {
  %W = diagram.read %X at "2 * (t // 8) + 1, c // 4" padded {note = "kept"} : tensor<?x?xf32, #diagram.array<[l, k]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return %W : tensor<?x?xf32, #diagram.array<[t, c]>>
}

// CHECK-LABEL: func.func @fill
// CHECK-NEXT: %zero = diagram.fill 0.000000e+00 : f32 -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT: %one = diagram.fill 1 : i32 -> tensor<4xi32, #diagram.array<[i]>>
// GENERIC: %zero = "diagram.fill"() <{value = 0.000000e+00 : f32}> : () -> tensor<?xf32, #diagram.array<[q]>>
func.func @fill() -> !n {
  %zero = diagram.fill 0.0 : f32 -> !m
  %one = diagram.fill 1 : i32 -> !n
  func.return %one : !n
}

// CHECK-LABEL: func.func @apply
// CHECK-NEXT: %P = diagram.apply @share(%S) over [x] : (tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>>
// GENERIC: "diagram.apply"(%S) <{law = @share, over = ["x"]}>
func.func @apply(%S: !S) -> !S {
  %P = diagram.apply @share(%S) over [x] : (!S) -> !S
  func.return %P : !S
}

// Levels and layouts, which later passes decide.

// CHECK-LABEL: func.func @decorated
// CHECK-SAME: (%near: tensor<4xf32, #diagram.array<[i], level = register>>, %laid: tensor<4xf32, #diagram.array<[i], level = shared, layout = "rows">>)
func.func @decorated(%near: !near, %laid: !laid) {
  func.return
}

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

// CHECK-LABEL: diagram.law @share over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> tensor<?xf32, #diagram.array<[x]>> {
// CHECK-NEXT:   %l = diagram.reduce add %v over [x] : tensor<?xf32, #diagram.array<[x]>> -> tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:   %y = diagram.map (%a = %v : tensor<?xf32, #diagram.array<[x]>>, %b = %l : tensor<f32, #diagram.array<[]>>) -> tensor<?xf32, #diagram.array<[x]>> {
// CHECK-NEXT:     %quotient = arith.divf %a, %b : f32
// CHECK-NEXT:     diagram.yield %quotient : f32
// CHECK-NEXT:   }
// CHECK-NEXT:   diagram.yield %y : tensor<?xf32, #diagram.array<[x]>>
// CHECK-NEXT: }
// GENERIC: "diagram.law"() <{sym_name = "share", over = ["x"], function_type = (tensor<?xf32, #diagram.array<[x]>>) -> tensor<?xf32, #diagram.array<[x]>>}>
diagram.law @share over [x] (%v: !v) -> !v {
  %l = diagram.reduce add %v over [x] : !v -> !r
  %y = diagram.map (%a = %v : !v, %b = %l : !r) -> !v {
    %quotient = arith.divf %a, %b : f32
    diagram.yield %quotient : f32
  }
  diagram.yield %y : !v
}

// A law that states its stream.

// CHECK-LABEL: diagram.law @total over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> tensor<f32, #diagram.array<[]>> {
// CHECK:        } initialise {
// CHECK-NEXT:     %start = diagram.fill 0.000000e+00 : f32 -> tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:     diagram.yield %start : tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:   } step (%so_far: tensor<f32, #diagram.array<[]>>, %piece: tensor<?xf32, #diagram.array<[x]>>) {
// CHECK-NEXT:     %next = diagram.reduce add %piece over [x] into %so_far : tensor<?xf32, #diagram.array<[x]>> -> tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:     diagram.yield %next : tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:   } finish (%end: tensor<f32, #diagram.array<[]>>) {
// CHECK-NEXT:     diagram.yield %end : tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:   } merge (%one: tensor<f32, #diagram.array<[]>>, %other: tensor<f32, #diagram.array<[]>>) {
// CHECK-NEXT:     %both = diagram.map (%a = %one : tensor<f32, #diagram.array<[]>>, %b = %other : tensor<f32, #diagram.array<[]>>) -> tensor<f32, #diagram.array<[]>> {
// CHECK-NEXT:       %sum = arith.addf %a, %b : f32
// CHECK-NEXT:       diagram.yield %sum : f32
// CHECK-NEXT:     }
// CHECK-NEXT:     diagram.yield %both : tensor<f32, #diagram.array<[]>>
// CHECK-NEXT:   }
diagram.law @total over [x] (%v: !v) -> !r {
  %l = diagram.reduce add %v over [x] : !v -> !r
  diagram.yield %l : !r
} initialise {
  %start = diagram.fill 0.0 : f32 -> !r
  diagram.yield %start : !r
} step (%so_far: !r, %piece: !v) {
  %next = diagram.reduce add %piece over [x] into %so_far : !v -> !r
  diagram.yield %next : !r
} finish (%end: !r) {
  diagram.yield %end : !r
} merge (%one: !r, %other: !r) {
  %both = diagram.map (%a = %one : !r, %b = %other : !r) -> !r {
    %sum = arith.addf %a, %b : f32
    diagram.yield %sum : f32
  }
  diagram.yield %both : !r
}

// Two results.

// CHECK-LABEL: func.func @two
// CHECK-NEXT: %s, %t = diagram.apply @both(%S) over [x] : (tensor<?x?xf32, #diagram.array<[q, x]>>) -> (tensor<?xf32, #diagram.array<[q]>>, tensor<?xf32, #diagram.array<[q]>>)
func.func @two(%S: !S) -> !m {
  %s, %t = diagram.apply @both(%S) over [x] : (!S) -> (!m, !m)
  func.return %t : !m
}

// CHECK-LABEL: diagram.law @both over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> (tensor<f32, #diagram.array<[]>>, tensor<f32, #diagram.array<[]>>) {
diagram.law @both over [x] (%v: !v) -> (!r, !r) {
  %m = diagram.reduce max %v over [x] : !v -> !r
  %l = diagram.reduce add %v over [x] : !v -> !r
  diagram.yield %m, %l : !r, !r
}

// CHECK-LABEL: diagram.law @twice over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> tensor<f32, #diagram.array<[]>> gradient @twice_gradient {
// GENERIC: "diagram.law"() <{sym_name = "twice", {{.*}}gradient = @twice_gradient}>
diagram.law @twice over [x] (%v: !v) -> !r gradient @twice_gradient {
  %l = diagram.reduce add %v over [x] : !v -> !r
  diagram.yield %l : !r
}

// Two axes as one, and back.

// CHECK-LABEL: func.func @regrouped
// CHECK-NEXT: %flat = diagram.collapse %K [x, y] as x_y : tensor<?x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<?x4xf32, #diagram.array<[x_y, d]>>
// CHECK-NEXT: %again = diagram.expand %flat x_y as [x, y] : tensor<?x4xf32, #diagram.array<[x_y, d]>> -> tensor<?x3x4xf32, #diagram.array<[x, y, d]>>
// CHECK-NEXT: %all = diagram.collapse %again [x, y, d] as z : tensor<?x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<?xf32, #diagram.array<[z]>>
// GENERIC: %flat = "diagram.collapse"(%K) <{axes = ["x", "y"], axis = "x_y"}>
// GENERIC-NEXT: %again = "diagram.expand"(%flat) <{axes = ["x", "y"], axis = "x_y"}>
func.func @regrouped(%K: tensor<?x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<?xf32, #diagram.array<[z]>> {
  %flat = diagram.collapse %K [x, y] as x_y : tensor<?x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<?x4xf32, #diagram.array<[x_y, d]>>
  %again = diagram.expand %flat x_y as [x, y] : tensor<?x4xf32, #diagram.array<[x_y, d]>> -> tensor<?x3x4xf32, #diagram.array<[x, y, d]>>
  %all = diagram.collapse %again [x, y, d] as z : tensor<?x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<?xf32, #diagram.array<[z]>>
  func.return %all : tensor<?xf32, #diagram.array<[z]>>
}

// Elements that are added up where data say, to zeros, and to an array.

// CHECK-LABEL: func.func @scatter
// CHECK-NEXT: %S = diagram.scatter %X at "n[t, r % 4], c" with (n = %n : tensor<?x?xi32, #diagram.array<[t, m]>>) {note = "kept"} : tensor<?x?x?xf32, #diagram.array<[t, r, c]>> -> tensor<?x?xf32, #diagram.array<[p, c]>>
// CHECK-NEXT: %T = diagram.scatter %X at "2 * t + r, c" into %S : tensor<?x?x?xf32, #diagram.array<[t, r, c]>> -> tensor<?x?xf32, #diagram.array<[p, c]>>
// GENERIC: %S = "diagram.scatter"(%X, %n) <{place = #diagram.place<"n[t, r % 4], c">, names = ["n"], operandSegmentSizes = array<i32: 1, 0, 1>}> {note = "kept"} :
// GENERIC-NEXT: %T = "diagram.scatter"(%X, %S) <{place = #diagram.place<"2 * t + r, c">, operandSegmentSizes = array<i32: 1, 1, 0>}> :
func.func @scatter(%X: tensor<?x?x?xf32, #diagram.array<[t, r, c]>>, %n: tensor<?x?xi32, #diagram.array<[t, m]>>) -> tensor<?x?xf32, #diagram.array<[p, c]>> {
  %S = diagram.scatter %X at "n[t, r % 4], c" with (n = %n : tensor<?x?xi32, #diagram.array<[t, m]>>) {note = "kept"} : tensor<?x?x?xf32, #diagram.array<[t, r, c]>> -> tensor<?x?xf32, #diagram.array<[p, c]>>
  %T = diagram.scatter %X at "2 * t + r, c" into %S : tensor<?x?x?xf32, #diagram.array<[t, r, c]>> -> tensor<?x?xf32, #diagram.array<[p, c]>>
  func.return %T : tensor<?x?xf32, #diagram.array<[p, c]>>
}

// CHECK-LABEL: func.func @recurrence
// CHECK-NEXT:    %[[last:.*]], %[[Y:.*]] = diagram.recurrence over x (%s = %m : tensor<?xf32, #diagram.array<[q]>>) each (%v = %S : tensor<?x?xf32, #diagram.array<[q, x]>>, %w = %m : tensor<?xf32, #diagram.array<[q]>>) -> (tensor<?xf32, #diagram.array<[q]>>, tensor<?x?xf32, #diagram.array<[q, x]>>) attributes {note = "kept"} {
// CHECK-NEXT:      %r = diagram.map (%a = %s : tensor<?xf32, #diagram.array<[q]>>, %b = %v : tensor<?xf32, #diagram.array<[q]>>, %c = %w : tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>> {
// CHECK:           diagram.yield %r, %s : tensor<?xf32, #diagram.array<[q]>>, tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT:    }
// GENERIC: "diagram.recurrence"(%m, %S, %m) <{axis = "x", operandSegmentSizes = array<i32: 1, 2>}> ({
// GENERIC-NEXT: ^bb0(%s: tensor<?xf32, #diagram.array<[q]>>, %v: tensor<?xf32, #diagram.array<[q]>>, %w: tensor<?xf32, #diagram.array<[q]>>):
func.func @recurrence(%S: !S, %m: !m) -> (!m, !S) {
  %last, %Y = diagram.recurrence over x (%s = %m : !m) each (%v = %S : !S, %w = %m : !m) -> (!m, !S) attributes {note = "kept"} {
    %r = diagram.map (%a = %s : !m, %b = %v : !m, %c = %w : !m) -> !m {
      %p = arith.mulf %a, %b : f32
      %z = arith.addf %p, %c : f32
      diagram.yield %z : f32
    }
    diagram.yield %r, %s : !m, !m
  }
  func.return %last, %Y : !m, !S
}

// CHECK-LABEL: func.func @rename
// CHECK:           %g = diagram.rename %s (q as r) {note = "kept"} : tensor<?xf32, #diagram.array<[q]>> -> tensor<?xf32, #diagram.array<[r]>>
// CHECK:           %u = diagram.rename %t (r as q, q as r) : tensor<?x?xf32, #diagram.array<[q, r]>> -> tensor<?x?xf32, #diagram.array<[r, q]>>
// GENERIC:         %g = "diagram.rename"(%s) <{old = ["q"], new = ["r"]}> {note = "kept"} :
// GENERIC:         %u = "diagram.rename"(%t) <{old = ["r", "q"], new = ["q", "r"]}> :
func.func @rename(%S: !S, %m: !m, %W: tensor<?x?xf32, #diagram.array<[q, r]>>) -> !m {
  %last, %T = diagram.recurrence over x (%s = %m : !m, %t = %W : tensor<?x?xf32, #diagram.array<[q, r]>>) each (%v = %S : !S) -> (!m, tensor<?x?xf32, #diagram.array<[q, r]>>) {
    %g = diagram.rename %s (q as r) {note = "kept"} : !m -> tensor<?xf32, #diagram.array<[r]>>
    %u = diagram.rename %t (r as q, q as r) : tensor<?x?xf32, #diagram.array<[q, r]>> -> tensor<?x?xf32, #diagram.array<[r, q]>>
    %p = diagram.contract %g, %u over [r] accumulate f32 : tensor<?xf32, #diagram.array<[r]>>, tensor<?x?xf32, #diagram.array<[r, q]>> -> !m
    diagram.yield %p, %t : !m, tensor<?x?xf32, #diagram.array<[q, r]>>
  }
  func.return %last : !m
}

// CHECK-LABEL: func.func @backwards
// CHECK:         diagram.recurrence over x reverse (%s = %m : tensor<?xf32, #diagram.array<[q]>>) each (%v = %S : tensor<?x?xf32, #diagram.array<[q, x]>>) -> (
// GENERIC:       "diagram.recurrence"(%m, %S) <{axis = "x", reverse, operandSegmentSizes = array<i32: 1, 1>}> ({
func.func @backwards(%S: !S, %m: !m) -> (!m, !S) {
  %last, %Y = diagram.recurrence over x reverse (%s = %m : !m) each (%v = %S : !S) -> (!m, !S) {
    diagram.yield %v, %s : !m, !m
  }
  func.return %last, %Y : !m, !S
}

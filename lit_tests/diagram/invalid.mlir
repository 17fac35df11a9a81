// RUN: xdsl-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: axis 'q' appears 2 times in one array: each axis of an array needs a name of its own
func.func private @f(tensor<?x?xf32, #diagram.array<[q, q]>>)

// -----

// CHECK: unknown memory level 'l3' (levels are device, shared, register)
func.func private @f(tensor<?xf32, #diagram.array<[q], level = l3>>)

// -----

// CHECK: axis name 'q$' is not an identifier: use a letter, then letters, digits or '_'
func.func private @f(tensor<?xf32, #diagram.array<[q$]>>)

// -----

// CHECK: axis 'q' is given a size twice
func.func private @f() attributes {sizes = #diagram.sizes<q = 1, q = 2>}

// -----

// CHECK: axis 'q' has the negative size -1
func.func private @f() attributes {sizes = #diagram.sizes<q = -1>}

// -----

// CHECK: operand 0 names 1 axes [q] but has 2 dimensions
func.func @f(%Q: tensor<?x?xf32, #diagram.array<[q]>>) {
  %m = diagram.reduce add %Q over [q] : tensor<?x?xf32, #diagram.array<[q]>> -> tensor<f32, #diagram.array<[]>>
  func.return
}

// -----

// CHECK: operand 0 has the unsupported number format f64 (supported: f8E4M3FN, f8E5M2, f16, bf16, f32, i8, ui8, i32)
func.func @f(%Q: tensor<?xf64, #diagram.array<[q]>>) {
  %m = diagram.cast %Q : tensor<?xf64, #diagram.array<[q]>> -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: operand 0 has type tensor<4xf32>: expected an array with named axes, as in tensor<?x64xf16, #diagram.array<[q, d]>>, or a scalar of f8E4M3FN, f8E5M2, f16, bf16, f32, i8, ui8, i32
func.func @f(%Q: tensor<4xf32>) {
  %m = diagram.cast %Q : tensor<4xf32> -> tensor<4xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: axis 'd' has size 64 in operand 0 but 32 in operand 1
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x32xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x32xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'd' has size ? in operand 0 but 64 in operand 1
func.func @f(%Q: tensor<?x?xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : tensor<?x?xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: 'over' names no axis: nothing would be reduced
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'd' is reduced twice
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d, d] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'z' is reduced, but no operand has it (operands have 'q', 'd', 'x')
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [z] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'x' is reduced, yet the result still has it
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d, x] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'x' is neither reduced nor in the result: name it in 'over' or keep it in the result
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: axis 'y' of the result comes from no operand
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?x?xf32, #diagram.array<[q, x, y]>>
  func.return
}

// -----

// CHECK: operands of a contraction have formats f16 and bf16: cast one of them
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xbf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xbf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: cannot accumulate in f64
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f64 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: products of f16 cannot be accumulated in i32
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate i32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: operands of f16 cannot multiply 'as tf32': those of f32 may 'as tf32', others as they are
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 as tf32 : tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: 'into' has type tensor<?xf32, #diagram.array<[q]>>, the result has tensor<?x?xf32, #diagram.array<[q, x]>>
func.func @f(%Q: tensor<?x64xf16, #diagram.array<[q, d]>>, %K: tensor<?x64xf16, #diagram.array<[x, d]>>, %m: tensor<?xf32, #diagram.array<[q]>>) {
  %S = "diagram.contract"(%Q, %K, %m) <{over = ["d"], accumulate = f32}> : (tensor<?x64xf16, #diagram.array<[q, d]>>, tensor<?x64xf16, #diagram.array<[x, d]>>, tensor<?xf32, #diagram.array<[q]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: unknown reduction 'mean' (known: add, mul, max, min)
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %m = diagram.reduce mean %S over [x] : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: cannot reduce f32 in i32
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %m = diagram.reduce add %S over [x] : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?xi32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: unknown scan 'mean' (known: add, mul, max, min)
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %m: tensor<?xf32, #diagram.array<[q]>>) {
  %C = diagram.scan mean %S over x : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'z' is scanned, but the operand has no such axis (it has 'q', 'x')
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %m: tensor<?xf32, #diagram.array<[q]>>) {
  %C = diagram.scan add %S over z : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: a scan keeps the axes: operand has 'q', 'x', result 'q'
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %m: tensor<?xf32, #diagram.array<[q]>>) {
  %C = diagram.scan add %S over x : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: cannot scan f32 in i32
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %m: tensor<?xf32, #diagram.array<[q]>>) {
  %C = diagram.scan add %S over x : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xi32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: a scan in i8: cast to i32 and scan that
func.func @f(%B: tensor<?x?xi8, #diagram.array<[q, x]>>) {
  %C = diagram.scan add %B over x : tensor<?x?xi8, #diagram.array<[q, x]>> -> tensor<?x?xi8, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: a scan in f8E4M3FN: cast to f32 and scan that
func.func @f(%B: tensor<?x?xf8E4M3FN, #diagram.array<[q, x]>>) {
  %C = diagram.scan add %B over x : tensor<?x?xf8E4M3FN, #diagram.array<[q, x]>> -> tensor<?x?xf8E4M3FN, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: 'total' has type tensor<?xf32, #diagram.array<[x]>>: it has the axes of the result but 'x', and its format
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %t: tensor<?xf32, #diagram.array<[x]>>) {
  %C = diagram.scan add %S over x total %t : tensor<?x?xf32, #diagram.array<[q, x]>>, tensor<?xf32, #diagram.array<[x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: 'into' has type tensor<?xf16, #diagram.array<[q]>>: it has the axes of the result but 'x', and its format
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %t: tensor<?xf16, #diagram.array<[q]>>) {
  %C = diagram.scan add %S over x into %t : tensor<?x?xf32, #diagram.array<[q, x]>>, tensor<?xf16, #diagram.array<[q]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: axis 'x' of operand 0 is not in the result: a map keeps every axis (reduce it first, or add it to the result)
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %m = diagram.map (%s = %S : tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?xf32, #diagram.array<[q]>> {
    diagram.yield %s : f32
  }
  func.return
}

// -----

// CHECK: the result of a map must be an array
func.func @f(%S: f32) {
  %m = diagram.map (%s = %S : f32) -> f32 {
    diagram.yield %s : f32
  }
  func.return
}

// -----

// CHECK: the body takes 0 scalars, the map has 1 operands
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = "diagram.map"(%m) ({
    %c = arith.constant 0.0 : f32
    diagram.yield %c : f32
  }) : (tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: scalar 0 of the body is f16, elements of operand 0 are f32
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = "diagram.map"(%m) ({
  ^bb0(%s: f16):
    %c = arith.constant 0.0 : f32
    diagram.yield %c : f32
  }) : (tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: random numbers have 16 bits or 32, not 8
func.func @f(%m: tensor<?xi32, #diagram.array<[q]>>) {
  %n = diagram.map (%s = %m : tensor<?xi32, #diagram.array<[q]>>) -> tensor<?xi32, #diagram.array<[q]>> {
    %r = diagram.random 8 of %s at %s, %s : i32
    diagram.yield %r : i32
  }
  func.return
}

// -----

// CHECK: 'diagram.random' expects parent op 'diagram.map'
func.func @f(%m: i32) {
  %r = diagram.random 16 of %m at %m, %m : i32
  func.return
}

// -----

// CHECK: 'diagram.fill' in the body of a map: only operations of arith and math, and diagram.random, may stand there
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = diagram.map (%s = %m : tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>> {
    %z = diagram.fill 0.0 : f32 -> tensor<?xf32, #diagram.array<[q]>>
    diagram.yield %s : f32
  }
  func.return
}

// -----

// CHECK: 'arith.extf' in the body of a map computes in f64 (supported: f8E4M3FN, f8E5M2, f16, bf16, f32, i8, ui8, i32, i1, index)
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = diagram.map (%s = %m : tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>> {
    %t = arith.extf %s : f32 to f64
    %r = arith.truncf %t : f64 to f32
    diagram.yield %r : f32
  }
  func.return
}

// -----

// CHECK: the body uses a value from outside: make it an operand of the map
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>, %c: f32) {
  %n = diagram.map (%s = %m : tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>> {
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }
  func.return
}

// -----

// CHECK: the body yields (f32, f32), elements of the result are f32
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = diagram.map (%s = %m : tensor<?xf32, #diagram.array<[q]>>) -> tensor<?xf32, #diagram.array<[q]>> {
    diagram.yield %s, %s : f32, f32
  }
  func.return
}

// -----

// CHECK: a cast keeps the axes: operand has 'q', result 'x'
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = diagram.cast %m : tensor<?xf32, #diagram.array<[q]>> -> tensor<?xf32, #diagram.array<[x]>>
  func.return
}

// -----

// CHECK: a cast from a float format to i32 is not defined: it would not be the identity
func.func @f(%m: tensor<?xf32, #diagram.array<[q]>>) {
  %n = diagram.cast %m : tensor<?xf32, #diagram.array<[q]>> -> tensor<?xi32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: the constant is f32, elements are f16
func.func @f() {
  %n = diagram.fill 0.0 : f32 -> tensor<?xf16, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: axis 'z' is in no operand of the law
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %P = diagram.apply @softmax(%S) over [z] : (tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: the meaning of a law ends with diagram.yield
diagram.law @id over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> tensor<?xf32, #diagram.array<[x]>> {
  %w = diagram.cast %v : tensor<?xf32, #diagram.array<[x]>> -> tensor<?xf32, #diagram.array<[x]>>
}

// -----

// CHECK: the meaning of a law yields (tensor<?xf32, #diagram.array<[x]>>) where (f32) is declared
diagram.law @id over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> f32 {
  diagram.yield %v : tensor<?xf32, #diagram.array<[x]>>
}

// -----

// CHECK: axis 'y' is in no argument of the law
diagram.law @id over [y] (%v: tensor<?xf32, #diagram.array<[x]>>) -> tensor<?xf32, #diagram.array<[x]>> {
  diagram.yield %v : tensor<?xf32, #diagram.array<[x]>>
}

// -----

// CHECK: positions lie along one axis, the result has [q, x]
func.func @f() {
  %i = diagram.index -> tensor<?x?xi32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: positions are i32, not f32: convert them in a map
func.func @f() {
  %i = diagram.index -> tensor<?xf32, #diagram.array<[q]>>
  func.return
}

// -----

// CHECK: a stream is fed along one axis, the law is over 2
diagram.law @sum over [x, y] (%v: tensor<?x?xf32, #diagram.array<[x, y]>>) -> f32 {
  %c = arith.constant 0.0 : f32
  diagram.yield %c : f32
} initialise {
  diagram.yield
} step (%v: tensor<?x?xf32, #diagram.array<[x, y]>>) {
  diagram.yield
} finish {
  %c = arith.constant 0.0 : f32
  diagram.yield %c : f32
}

// -----

// CHECK: a stream has 'initialise', 'step', 'finish' and, if it can be split, 'merge'
diagram.law @sum over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> f32 {
  %c = arith.constant 0.0 : f32
  diagram.yield %c : f32
} initialise {
  diagram.yield
}

// -----

// CHECK: the state tensor<?xf32, #diagram.array<[x]>> has axis 'x', which the stream is fed along
diagram.law @sum over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> f32 {
  %c = arith.constant 0.0 : f32
  diagram.yield %c : f32
} initialise {
  %s = diagram.fill 0.0 : f32 -> tensor<?xf32, #diagram.array<[x]>>
  diagram.yield %s : tensor<?xf32, #diagram.array<[x]>>
} step {
  diagram.yield
} finish {
  diagram.yield
}

// -----

// CHECK: 'step' takes (f32), it is given (f32, tensor<?xf32, #diagram.array<[x]>>)
diagram.law @sum over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> f32 {
  %c = arith.constant 0.0 : f32
  diagram.yield %c : f32
} initialise {
  %s = arith.constant 0.0 : f32
  diagram.yield %s : f32
} step (%s: f32) {
  diagram.yield %s : f32
} finish (%s: f32) {
  diagram.yield %s : f32
}

// -----

// CHECK: 'merge' of a law yields () where (f32) is declared
diagram.law @sum over [x] (%v: tensor<?xf32, #diagram.array<[x]>>) -> f32 {
  %c = arith.constant 0.0 : f32
  diagram.yield %c : f32
} initialise {
  %s = arith.constant 0.0 : f32
  diagram.yield %s : f32
} step (%s: f32, %v: tensor<?xf32, #diagram.array<[x]>>) {
  diagram.yield %s : f32
} finish (%s: f32) {
  diagram.yield %s : f32
} merge (%a: f32, %b: f32) {
  diagram.yield
}

// -----

// CHECK: condition 'x <=' cannot be read: write it as in 'x <= q and x < len[b]'
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x <=" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: condition 'x + q': 'x + q' is no comparison: compare with <, <=, >, >=, == or !=, as in 'x <= q'
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x + q" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: condition 'x * q < 4': 'x * q' multiplies two things that vary: one of them must be a number
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x * q < 4" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: condition 'x % q < 2': 'x % q' is divided by 'q', which is no number above zero: compute it in an array of integers, and name that
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x % q < 2" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: condition 'x in q': compare with <, <=, >, >=, == or !=
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x in q" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: 'y' is neither an axis of the array ('q', 'x') nor an input
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x <= y" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: 'n[q]' reads no input: name it after 'with'
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x <= n[q]" : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: input 'n' is read as 'n': write 'n[q]'
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %n: tensor<?xi32, #diagram.array<[q]>>) {
  %W = diagram.where %S if "x <= n" with (n = %n : tensor<?xi32, #diagram.array<[q]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: input 'n' does not appear in the condition
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %n: tensor<?xi32, #diagram.array<[q]>>) {
  %W = diagram.where %S if "x <= q" with (n = %n : tensor<?xi32, #diagram.array<[q]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: input 'x' has the name of another input, or of an axis
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %n: tensor<?xi32, #diagram.array<[q]>>) {
  %W = diagram.where %S if "x <= q" with (x = %n : tensor<?xi32, #diagram.array<[q]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: input 'n' of a condition has elements f32, not i32
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %W = diagram.where %S if "x <= n[q, x]" with (n = %S : tensor<?x?xf32, #diagram.array<[q, x]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: input 'n' has axis 'b', which the array has not
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %n: tensor<?xi32, #diagram.array<[b]>>) {
  %W = diagram.where %S if "x < n[b]" with (n = %n : tensor<?xi32, #diagram.array<[b]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: condition 'n[q] < n[x]' indexes 'n' in two ways: give the array a second name
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %n: tensor<?xi32, #diagram.array<[q]>>) {
  %W = diagram.where %S if "n[q] < n[x]" with (n = %n : tensor<?xi32, #diagram.array<[q]>>) : tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: place 't +' cannot be read: write it as in 'b, 2 * t + r, c'
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t +" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: place 't * r, c': 't * r' multiplies two things that vary: one of them must be a number
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t * r, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: place 't - r, c': 'r' runs backwards
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t - r, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: place 't + r - 1, c' begins before the array
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t + r - 1, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: a read at quotients may end within a block: say that it is padded
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t // 8, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: place 't // 8, c + t': 't' of a quotient stands once
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t // 8, c + t" padded : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: place 't // 0, c': 't // 0' is no sum of positions, integer inputs and whole numbers
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t // 0, c" padded : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: a read at entries or remainders may leave the operand: say that it is padded
func.func @read(%X: tensor<?x?xf32, #diagram.array<[p, c]>>, %n: tensor<?xi32, #diagram.array<[t]>>) {
  %W = diagram.read %X at "n[t], c" with (n = %n : tensor<?xi32, #diagram.array<[t]>>) : tensor<?x?xf32, #diagram.array<[p, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: input 'n' of a place has elements f32, not i32
func.func @read(%X: tensor<?x?xf32, #diagram.array<[p, c]>>, %n: tensor<?xf32, #diagram.array<[t]>>) {
  %W = diagram.read %X at "n[t], c" padded with (n = %n : tensor<?xf32, #diagram.array<[t]>>) : tensor<?x?xf32, #diagram.array<[p, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: 'n[t // 8, t]' has 2 positions for the axes 'm' of its array
func.func @read(%X: tensor<?x?xf32, #diagram.array<[p, c]>>, %n: tensor<?xi32, #diagram.array<[m]>>) {
  %W = diagram.read %X at "n[t // 8, t], c" padded with (n = %n : tensor<?xi32, #diagram.array<[m]>>) : tensor<?x?xf32, #diagram.array<[p, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: input 'n' does not appear in the place
func.func @read(%X: tensor<?x?xf32, #diagram.array<[p, c]>>, %n: tensor<?xi32, #diagram.array<[m]>>) {
  %W = diagram.read %X at "t % 8, c" padded with (n = %n : tensor<?xi32, #diagram.array<[m]>>) : tensor<?x?xf32, #diagram.array<[p, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: input 'c' has the name of another input, or of an axis
func.func @read(%X: tensor<?x?xf32, #diagram.array<[p, c]>>, %n: tensor<?xi32, #diagram.array<[t]>>) {
  %W = diagram.read %X at "c[t], c" padded with (c = %n : tensor<?xi32, #diagram.array<[t]>>) : tensor<?x?xf32, #diagram.array<[p, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  func.return
}

// -----

// CHECK: no position of one axis says what '(4 * u + v) // 8' is: it takes whole blocks of 8
func.func @read(%X: tensor<?x?xf32, #diagram.array<[p, s]>>) {
  %Y = diagram.read %X at "t // 8, t % 8" padded : tensor<?x?xf32, #diagram.array<[p, s]>> -> tensor<?xf32, #diagram.array<[t]>>
  %W = diagram.read %Y at "4 * u + v" : tensor<?xf32, #diagram.array<[t]>> -> tensor<?x?xf32, #diagram.array<[u, v]>>
  func.return
}

// -----

// CHECK: it reads what a padded read gives, which is in no memory: put a map between, which saves it, or read the array itself
func.func @read(%X: tensor<?xf32, #diagram.array<[p]>>, %n: tensor<?xi32, #diagram.array<[t]>>) {
  %Y = diagram.read %X at "l - 1" padded : tensor<?xf32, #diagram.array<[p]>> -> tensor<?xf32, #diagram.array<[l]>>
  %W = diagram.read %Y at "n[t]" padded with (n = %n : tensor<?xi32, #diagram.array<[t]>>) : tensor<?xf32, #diagram.array<[l]>> -> tensor<?xf32, #diagram.array<[t]>>
  func.return
}

// -----

// CHECK: it reads what a read at quotients gives, which is in no memory: put a map between, which saves it, or read the array itself
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t // 8, c" padded : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
  %Y = diagram.read %W at "2 * s, c" : tensor<?x?xf32, #diagram.array<[t, c]>> -> tensor<?x?xf32, #diagram.array<[s, c]>>
  func.return
}

// -----

// CHECK: 'n[r]' reads no input: name it after 'with'
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t + n[r], c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: 1 positions for the 2 axes of the operand ('l', 'c')
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t + r + c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: 's' is no axis of the result ('t', 'r', 'c')
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t + r + s, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: axis 'r' of the result reads nothing: a map broadcasts along it
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: axis 'r' of the result reads nothing, which says no size of it
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t, c" padded : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x?x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: a read keeps the format: f32
func.func @f(%X: tensor<?x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t + r, c" : tensor<?x?xf32, #diagram.array<[l, c]>> -> tensor<?x8x?xf16, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: it reads up to 12 along 'l', which has 12
func.func @f(%X: tensor<12x?xf32, #diagram.array<[l, c]>>) {
  %W = diagram.read %X at "t + r, c" : tensor<12x?xf32, #diagram.array<[l, c]>> -> tensor<6x8x?xf32, #diagram.array<[t, r, c]>>
  func.return
}

// -----

// CHECK: one axis stands for two others at least, here for 'x'
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<2x3x4xf32, #diagram.array<[z, y, d]>> {
  %z = diagram.collapse %K [x] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<2x3x4xf32, #diagram.array<[z, y, d]>>
  func.return %z : tensor<2x3x4xf32, #diagram.array<[z, y, d]>>
}

// -----

// CHECK: axis 'w' is not in the array, which has 'x', 'y', 'd'
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<6x4xf32, #diagram.array<[z, d]>> {
  %z = diagram.collapse %K [x, w] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<6x4xf32, #diagram.array<[z, d]>>
  func.return %z : tensor<6x4xf32, #diagram.array<[z, d]>>
}

// -----

// CHECK: axes 'x', 'd' do not lie one within the other, in that order, in an array of 'x', 'y', 'd'
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<8x3xf32, #diagram.array<[z, y]>> {
  %z = diagram.collapse %K [x, d] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<8x3xf32, #diagram.array<[z, y]>>
  func.return %z : tensor<8x3xf32, #diagram.array<[z, y]>>
}

// -----

// CHECK: axes 'y', 'x' do not lie one within the other
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<6x4xf32, #diagram.array<[z, d]>> {
  %z = diagram.collapse %K [y, x] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<6x4xf32, #diagram.array<[z, d]>>
  func.return %z : tensor<6x4xf32, #diagram.array<[z, d]>>
}

// -----

// CHECK: the array has an axis 'd' already
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<6x4xf32, #diagram.array<[d, e]>> {
  %z = diagram.collapse %K [x, y] as d : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<6x4xf32, #diagram.array<[d, e]>>
  func.return %z : tensor<6x4xf32, #diagram.array<[d, e]>>
}

// -----

// CHECK: the other array has 'd', 'z', it must have 'z', 'd'
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<4x6xf32, #diagram.array<[d, z]>> {
  %z = diagram.collapse %K [x, y] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<4x6xf32, #diagram.array<[d, z]>>
  func.return %z : tensor<4x6xf32, #diagram.array<[d, z]>>
}

// -----

// CHECK: its format stays: f32
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<6x4xf16, #diagram.array<[z, d]>> {
  %z = diagram.collapse %K [x, y] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<6x4xf16, #diagram.array<[z, d]>>
  func.return %z : tensor<6x4xf16, #diagram.array<[z, d]>>
}

// -----

// CHECK: axis 'd' changes its size
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<6x5xf32, #diagram.array<[z, d]>> {
  %z = diagram.collapse %K [x, y] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<6x5xf32, #diagram.array<[z, d]>>
  func.return %z : tensor<6x5xf32, #diagram.array<[z, d]>>
}

// -----

// CHECK: axis 'z' has 6 elements by its parts, and 5 in its type
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<5x4xf32, #diagram.array<[z, d]>> {
  %z = diagram.collapse %K [x, y] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<5x4xf32, #diagram.array<[z, d]>>
  func.return %z : tensor<5x4xf32, #diagram.array<[z, d]>>
}

// -----

// CHECK: axis 'z' has 6 elements by its parts, and ? in its type
func.func @f(%K: tensor<2x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<?x4xf32, #diagram.array<[z, d]>> {
  %z = diagram.collapse %K [x, y] as z : tensor<2x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<?x4xf32, #diagram.array<[z, d]>>
  func.return %z : tensor<?x4xf32, #diagram.array<[z, d]>>
}

// -----

// CHECK: axes 'y', 'x' do not lie one within the other, in that order, in an array of 'x', 'y'
func.func @f(%z: tensor<6xf32, #diagram.array<[z]>>) -> tensor<2x3xf32, #diagram.array<[x, y]>> {
  %K = diagram.expand %z z as [y, x] : tensor<6xf32, #diagram.array<[z]>> -> tensor<2x3xf32, #diagram.array<[x, y]>>
  func.return %K : tensor<2x3xf32, #diagram.array<[x, y]>>
}

// -----

// CHECK: 'diagram.shared' is #diagram.sizes of one axis, along which 2 or 4 share, not #diagram.sizes<x = 3>
func.func @f(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<x = 3>} : f32
    diagram.yield %t : f32
  }
  func.return %T : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// -----

// CHECK: 'diagram.shared' along 'z', which is no axis of the map
func.func @f(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<z = 2>} : f32
    diagram.yield %t : f32
  }
  func.return %T : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// -----

// CHECK: 'math.tanh' has 'diagram.shared': only a tanh with the flag afn or a quotient with arcp, in f32, may
func.func @f(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %t = math.tanh %s {diagram.shared = #diagram.sizes<x = 2>} : f32
    diagram.yield %t : f32
  }
  func.return %T : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// -----

// CHECK: 2 operations of a body have 'diagram.shared': one may
func.func @f(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<x = 2>} : f32
    %u = math.tanh %t fastmath<afn> {diagram.shared = #diagram.sizes<x = 2>} : f32
    diagram.yield %u : f32
  }
  func.return %T : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// -----

// CHECK: 'diagram.shared' is a number of elements, 2 or 4, not 3
func.func @f(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %t = arith.divf %s, %s fastmath<arcp> {diagram.shared = 3 : i64} : f32
    diagram.yield %t : f32
  }
  func.return %T : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// -----

// CHECK: 'math.tanh' has 'diagram.shared' = 4: only a quotient with the flag arcp or the tanh of 1 + tanh with afn, in f32, may
func.func @f(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %t = math.tanh %s fastmath<afn> {diagram.shared = 4 : i64} : f32
    diagram.yield %t : f32
  }
  func.return %T : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// -----

// CHECK: f16 is added up in f32: both are f32, or both i32; cast before, or after
func.func @f(%X: tensor<4x8xf16, #diagram.array<[t, c]>>, %n: tensor<4xi32, #diagram.array<[t]>>) -> tensor<9x8xf32, #diagram.array<[r, c]>> {
  %S = diagram.scatter %X at "n[t], c" with (n = %n : tensor<4xi32, #diagram.array<[t]>>) : tensor<4x8xf16, #diagram.array<[t, c]>> -> tensor<9x8xf32, #diagram.array<[r, c]>>
  func.return %S : tensor<9x8xf32, #diagram.array<[r, c]>>
}

// -----

// CHECK: 1 positions for the 2 axes of the result ('r', 'c')
func.func @f(%X: tensor<4x8xf32, #diagram.array<[t, c]>>, %n: tensor<4xi32, #diagram.array<[t]>>) -> tensor<9x8xf32, #diagram.array<[r, c]>> {
  %S = diagram.scatter %X at "n[t]" with (n = %n : tensor<4xi32, #diagram.array<[t]>>) : tensor<4x8xf32, #diagram.array<[t, c]>> -> tensor<9x8xf32, #diagram.array<[r, c]>>
  func.return %S : tensor<9x8xf32, #diagram.array<[r, c]>>
}

// -----

// CHECK: 'r' is no axis of the operand ('t', 'c')
func.func @f(%X: tensor<4x8xf32, #diagram.array<[t, c]>>, %n: tensor<4xi32, #diagram.array<[t]>>) -> tensor<9x8xf32, #diagram.array<[r, c]>> {
  %S = diagram.scatter %X at "n[r], c" with (n = %n : tensor<4xi32, #diagram.array<[t]>>) : tensor<4x8xf32, #diagram.array<[t, c]>> -> tensor<9x8xf32, #diagram.array<[r, c]>>
  func.return %S : tensor<9x8xf32, #diagram.array<[r, c]>>
}

// -----

// CHECK: input 'n' of a place has elements f32, not i32
func.func @f(%X: tensor<4x8xf32, #diagram.array<[t, c]>>, %n: tensor<4xf32, #diagram.array<[t]>>) -> tensor<9x8xf32, #diagram.array<[r, c]>> {
  %S = diagram.scatter %X at "n[t], c" with (n = %n : tensor<4xf32, #diagram.array<[t]>>) : tensor<4x8xf32, #diagram.array<[t, c]>> -> tensor<9x8xf32, #diagram.array<[r, c]>>
  func.return %S : tensor<9x8xf32, #diagram.array<[r, c]>>
}

// -----

// CHECK: 'into' has type tensor<9xf32, #diagram.array<[r]>>, the result has tensor<9x8xf32, #diagram.array<[r, c]>>
func.func @f(%X: tensor<4x8xf32, #diagram.array<[t, c]>>, %n: tensor<4xi32, #diagram.array<[t]>>, %A: tensor<9xf32, #diagram.array<[r]>>) -> tensor<9x8xf32, #diagram.array<[r, c]>> {
  %S = "diagram.scatter"(%X, %A, %n) <{place = #diagram.place<"n[t], c">, names = ["n"], operandSegmentSizes = array<i32: 1, 1, 1>}> : (tensor<4x8xf32, #diagram.array<[t, c]>>, tensor<9xf32, #diagram.array<[r]>>, tensor<4xi32, #diagram.array<[t]>>) -> tensor<9x8xf32, #diagram.array<[r, c]>>
  func.return %S : tensor<9x8xf32, #diagram.array<[r, c]>>
}

// -----

// CHECK: state 0 has axis 'x', along which it is taken
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %a = "diagram.recurrence"(%S, %S) <{axis = "x", operandSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%s : tensor<?xf32, #diagram.array<[q]>>, %v : tensor<?xf32, #diagram.array<[q]>>):
    diagram.yield %s : tensor<?xf32, #diagram.array<[q]>>
  }) : (tensor<?x?xf32, #diagram.array<[q, x]>>, tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?x?xf32, #diagram.array<[q, x]>>
  func.return
}

// -----

// CHECK: a recurrence has one state at least: what has none is a map
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>) {
  %a = diagram.recurrence over x () each (%v = %S : tensor<?x?xf32, #diagram.array<[q, x]>>) -> (tensor<?x?xf32, #diagram.array<[q, x]>>) {
    diagram.yield %v : tensor<?xf32, #diagram.array<[q]>>
  }
  func.return
}

// -----

// CHECK: the body yields tensor<?xf16, #diagram.array<[q]>> for result 0, which is tensor<?xf32, #diagram.array<[q]>> at a position
func.func @f(%S: tensor<?x?xf32, #diagram.array<[q, x]>>, %m: tensor<?xf32, #diagram.array<[q]>>) {
  %a = diagram.recurrence over x (%s = %m : tensor<?xf32, #diagram.array<[q]>>) each (%v = %S : tensor<?x?xf32, #diagram.array<[q, x]>>) -> (tensor<?xf32, #diagram.array<[q]>>) {
    %c = diagram.cast %v : tensor<?xf32, #diagram.array<[q]>> -> tensor<?xf16, #diagram.array<[q]>>
    diagram.yield %c : tensor<?xf16, #diagram.array<[q]>>
  }
  func.return
}

// -----

// CHECK: it stands in the body of a recurrence alone: elsewhere an array is read, as in `diagram.read .. at "r"`
func.func @f(%S: tensor<?xf32, #diagram.array<[q]>>) {
  %a = diagram.rename %S (q as r) : tensor<?xf32, #diagram.array<[q]>> -> tensor<?xf32, #diagram.array<[r]>>
  func.return
}

// -----

// CHECK: [q = 8] under other names is [r = 8], not [r = 9]
func.func @f(%S: tensor<8xf32, #diagram.array<[q]>>) {
  %a = diagram.rename %S (q as r) : tensor<8xf32, #diagram.array<[q]>> -> tensor<9xf32, #diagram.array<[r]>>
  func.return
}

// -----

// CHECK: axis 'q' is to be called 'r', as another axis of the operand is
func.func @f(%S: tensor<8x8xf32, #diagram.array<[q, r]>>) {
  %a = diagram.rename %S (q as r) : tensor<8x8xf32, #diagram.array<[q, r]>> -> tensor<8xf32, #diagram.array<[r]>>
  func.return
}

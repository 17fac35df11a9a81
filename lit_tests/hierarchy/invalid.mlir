// RUN: xdsl-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: an axis is partitioned twice
func.func private @f() attributes {p = #hierarchy.partition<[q = 1, q = 2]>}

// -----

// CHECK: axis 'q' is cut into pieces of 0: use 1 or more
func.func private @f() attributes {p = #hierarchy.partition<[q = 0]>}

// -----

// CHECK: axis 'q' is both in 'group' and in 'stream'
func.func private @f() attributes {s = #hierarchy.schedule<group = [q = 16], stream = [q = 16]>}

// -----

// CHECK: warps lie along axis 'x', which the schedule does not have
func.func private @f() attributes {s = #hierarchy.schedule<group = [q = 16], warps = [x = 4]>}

// -----

// CHECK: a subloop walks axis 'q', which is in 'group': it may be one of 'stream' or 'whole'
func.func private @f() attributes {s = #hierarchy.schedule<group = [q = 16], subloop = [q = 4]>}

// -----

// CHECK: a subloop walks axis 'd', which is none of the schedule's: it may be one of 'stream' or 'whole'
func.func private @f() attributes {s = #hierarchy.schedule<group = [q = 16], subloop = [d = 4]>}

// -----

// CHECK: the size of the subloop along 'x' is not decided
func.func private @f() attributes {s = #hierarchy.schedule<stream = [x = 16], subloop = [x = ?]>}

// -----

// CHECK: a subloop of 48 does not cut the 64 that a group holds of 'x' evenly
func.func private @f() attributes {s = #hierarchy.schedule<stream = [x = 64], subloop = [x = 48]>}

// -----

// CHECK: a subloop of 64 does not cut the 64 that a group holds of 'd' evenly
func.func private @f() attributes {s = #hierarchy.schedule<whole = [d = 64], subloop = [d = 64]>}

// -----

// CHECK: blocks of a cluster share axis 'q', which is in 'group': it may be one of 'whole'
func.func private @f() attributes {s = #hierarchy.schedule<group = [q = 16], cluster = [q = 4]>}

// -----

// CHECK: blocks of a cluster share axis 'd', which is none of the schedule's: it may be one of 'whole'
func.func private @f() attributes {s = #hierarchy.schedule<group = [q = 16], cluster = [d = 4]>}

// -----

// CHECK: blocks of a cluster share the axes 'x' and 'y': they share one
func.func private @f() attributes {s = #hierarchy.schedule<whole = [x = 64, y = 64], cluster = [x = 32, y = 32]>}

// -----

// CHECK: what each block of a cluster holds of 'x' is not decided
func.func private @f() attributes {s = #hierarchy.schedule<whole = [x = 64], cluster = [x = ?]>}

// -----

// CHECK: a piece of 64 leaves nothing of the 64 of 'x' to a second block
func.func private @f() attributes {s = #hierarchy.schedule<whole = [x = 64], cluster = [x = 64]>}

// -----

// CHECK: argument 0 is at level undecided: a kernel is given device
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    hierarchy.yield %a : tensor<?x64xf32, #diagram.array<[q, d]>>
  }
  func.return
}

// -----

// CHECK: argument 0 is tensor<64x?xf32, #diagram.array<[d, q], level = device>>, operand 0 is tensor<?x64xf32, #diagram.array<[q, d]>>
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<64x?xf32, #diagram.array<[d, q], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    %z = diagram.fill 0.0 : f32 -> tensor<?x64xf32, #diagram.array<[q, d]>>
    hierarchy.yield %z : tensor<?x64xf32, #diagram.array<[q, d]>>
  }
  func.return
}

// -----

// CHECK: argument 0 is tensor<?x64xf16, #diagram.array<[q, d], level = device>>, operand 0 is tensor<?x64xf32, #diagram.array<[q, d]>>
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf16, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    %z = diagram.fill 0.0 : f32 -> tensor<?x64xf32, #diagram.array<[q, d]>>
    hierarchy.yield %z : tensor<?x64xf32, #diagram.array<[q, d]>>
  }
  func.return
}

// -----

// CHECK: the body of a kernel ends with hierarchy.yield
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf32, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    %z = diagram.fill 0.0 : f32 -> tensor<?x64xf32, #diagram.array<[q, d]>>
  }
  func.return
}

// -----

// CHECK: the body yields [q = ?, e = 64], the kernel gives [q = ?, d = 64]
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf32, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    %z = diagram.fill 0.0 : f32 -> tensor<?x64xf32, #diagram.array<[q, e]>>
    hierarchy.yield %z : tensor<?x64xf32, #diagram.array<[q, e]>>
  }
  func.return
}

// -----

// CHECK: an expanded kernel saves its results: it yields nothing
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf32, #diagram.array<[q, d], level = device>>) saves (%o: memref<?x64xf32, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    %z = diagram.fill 0.0 : f32 -> tensor<?x64xf32, #diagram.array<[q, d]>>
    hierarchy.yield %z : tensor<?x64xf32, #diagram.array<[q, d]>>
  }
  func.return
}

// -----

// CHECK: 2 destinations for 1 results
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf32, #diagram.array<[q, d], level = device>>) saves (%o: memref<?x64xf32, #diagram.array<[q, d], level = device>>, %p: memref<?x64xf32, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: destination 0 is tensor<?x64xf32, #diagram.array<[q, d], level = device>>: expected a memref
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf32, #diagram.array<[q, d], level = device>>) saves (%o: tensor<?x64xf32, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: destination 0 is memref<?x32xf32, #diagram.array<[q, d], level = device>>, result 0 is tensor<?x64xf32, #diagram.array<[q, d]>>
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d]>>) {
  %O = hierarchy.kernel @k (%a = %A : tensor<?x64xf32, #diagram.array<[q, d]>> as tensor<?x64xf32, #diagram.array<[q, d], level = device>>) saves (%o: memref<?x32xf32, #diagram.array<[q, d], level = device>>) -> (tensor<?x64xf32, #diagram.array<[q, d]>>) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: the size of the pieces of axis 'q' is not decided
hierarchy.group [q = ?] {
  %c = arith.constant 0.0 : f32
}

// -----

// CHECK: a stream is fed along exactly one axis
func.func @f(%m: f32, %n: f16) {
  hierarchy.stream [x = 16, y = 2] initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: 'step' takes (f16), the state is (f32)
func.func @f(%m: f32, %n: f16) {
  hierarchy.stream [x = 16] initialise {
    hierarchy.yield %m : f32
  } step (%s: f16) {
    hierarchy.yield %m : f32
  } finish (%e: f32) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: 'step' yields (), the state is (f32)
func.func @f(%m: f32, %n: f16) {
  hierarchy.stream [x = 16] initialise {
    hierarchy.yield %m : f32
  } step (%s: f32) {
    hierarchy.yield
  } finish (%e: f32) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: 'finish' yields (), results are (f32)
func.func @f(%m: f32, %n: f16) {
  %r = hierarchy.stream [x = 16] -> (f32) initialise {
    hierarchy.yield %m : f32
  } step (%s: f32) {
    hierarchy.yield %s : f32
  } finish (%e: f32) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: 'initialise' ends with hierarchy.yield
func.func @f(%m: f32, %n: f16) {
  hierarchy.stream [x = 16] initialise {
    %c = arith.constant 0.0 : f32
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: axes [q, d] are loaded as [d, q]
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d], level = device>>, %v: tensor<16x64xf32, #diagram.array<[q, d], level = register>>, %O: memref<?x64xf32, #diagram.array<[q, d], level = device>>) {
  hierarchy.group [q = 16] {
    %t = hierarchy.load %A : tensor<?x64xf32, #diagram.array<[q, d], level = device>> -> tensor<64x16xf32, #diagram.array<[d, q], level = register>>
  }
  func.return
}

// -----

// CHECK: f32 is loaded as f16: cast it at a near level
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d], level = device>>, %v: tensor<16x64xf32, #diagram.array<[q, d], level = register>>, %O: memref<?x64xf32, #diagram.array<[q, d], level = device>>) {
  hierarchy.group [q = 16] {
    %t = hierarchy.load %A : tensor<?x64xf32, #diagram.array<[q, d], level = device>> -> tensor<16x64xf16, #diagram.array<[q, d], level = register>>
  }
  func.return
}

// -----

// CHECK: pieces are loaded between a nearer level and 'device', not register
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d], level = device>>, %v: tensor<16x64xf32, #diagram.array<[q, d], level = register>>, %O: memref<?x64xf32, #diagram.array<[q, d], level = device>>) {
  hierarchy.group [q = 16] {
    %t = hierarchy.load %v : tensor<16x64xf32, #diagram.array<[q, d], level = register>> -> tensor<16x64xf32, #diagram.array<[q, d], level = register>>
  }
  func.return
}

// -----

// CHECK: axis 'q' of the piece has size 32, but its pieces here are 16
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d], level = device>>, %v: tensor<16x64xf32, #diagram.array<[q, d], level = register>>, %O: memref<?x64xf32, #diagram.array<[q, d], level = device>>) {
  hierarchy.group [q = 16] {
    %t = hierarchy.load %A : tensor<?x64xf32, #diagram.array<[q, d], level = device>> -> tensor<32x64xf32, #diagram.array<[q, d], level = register>>
  }
  func.return
}

// -----

// CHECK: axis 'd' of the piece has size 32, but its pieces here are 64
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, d], level = device>>, %v: tensor<16x64xf32, #diagram.array<[q, d], level = register>>, %O: memref<?x64xf32, #diagram.array<[q, d], level = device>>) {
  hierarchy.group [q = 16] {
    %u = diagram.fill 0.0 : f32 -> tensor<16x32xf32, #diagram.array<[q, d], level = register>>
    hierarchy.save %u into %O : tensor<16x32xf32, #diagram.array<[q, d], level = register>>, memref<?x64xf32, #diagram.array<[q, d], level = device>>
  }
  func.return
}

// -----

// CHECK: 'hierarchy.yield' expects parent op to be one of 'hierarchy.kernel', 'hierarchy.stream'
func.func @f() {
  hierarchy.yield
}

// -----

// CHECK: 2 limits: a stream has 2 ('from .. to ..'), 4 with a 'border' ('whole from .. to ..' as well), or none
func.func @f(%low: index) {
  hierarchy.stream [x = 16] from %low to %low initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } border {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: 'border' takes (f16), the state is (f32)
func.func @f(%low: index, %m: f32) {
  hierarchy.stream [x = 16] from %low to %low whole from %low to %low initialise {
    hierarchy.yield %m : f32
  } step (%s: f32) {
    hierarchy.yield %s : f32
  } border (%s: f16) {
    hierarchy.yield %m : f32
  } finish (%e: f32) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: 'border' yields (), the state is (f32)
func.func @f(%low: index, %m: f32) {
  hierarchy.stream [x = 16] from %low to %low whole from %low to %low initialise {
    hierarchy.yield %m : f32
  } step (%s: f32) {
    hierarchy.yield %s : f32
  } border (%s: f32) {
    hierarchy.yield
  } finish (%e: f32) {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: the schedule holds 32 of axis 'x' whole, which has 64
func.func @f(%A: tensor<?x64xf32, #diagram.array<[q, x]>>) {
  %m = hierarchy.kernel @f (%a = %A : tensor<?x64xf32, #diagram.array<[q, x]>> as tensor<?x64xf32, #diagram.array<[q, x], level = device>>) -> (tensor<?xf32, #diagram.array<[q]>>)
      schedule #hierarchy.schedule<group = [q = 1], whole = [x = 32], cluster = [x = 16]> {
    %r = diagram.reduce max %a over [x] : tensor<?x64xf32, #diagram.array<[q, x], level = device>> -> tensor<?xf32, #diagram.array<[q], level = register>>
    hierarchy.yield %r : tensor<?xf32, #diagram.array<[q], level = register>>
  }
  func.return
}

// -----

// CHECK: sums are promoted along axis 'd', which is in 'whole': it may be the one of 'stream'
func.func private @f() attributes {s = #hierarchy.schedule<whole = [d = 64], promote = [d = 32]>}

// -----

// CHECK: sums are promoted along axis 'k', which is none of the schedule's: it may be the one of 'stream'
func.func private @f() attributes {s = #hierarchy.schedule<stream = [x = 64], promote = [k = 32]>}

// -----

// CHECK: how many products along 'x' are added up before a sum is promoted is not decided
func.func private @f() attributes {s = #hierarchy.schedule<stream = [x = 64], promote = [x = ?]>}

// -----

// CHECK: pieces are selected along exactly one axis
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16, q = 2] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  func.return
}

// -----

// CHECK: a list with room for 0 pieces: for 1 at least
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 0
  func.return
}

// -----

// CHECK: cells of 12 along 'x' do not divide pieces of 16
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 12] room 4
  func.return
}

// -----

// CHECK: input 't' holds f32: conditions are about i32
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %u : tensor<?x64xf32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  func.return
}

// -----

// CHECK: input 't' is at 'register': cells are read at 'device'
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %r : tensor<4x64xi32, #diagram.array<[q, x], level = register>>) cells [q = 1, x = 16] room 4
  func.return
}

// -----

// CHECK: 'q' is neither an input nor an axis that has cells
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "x <= q" cells [x = 16] room 4
  func.return
}

// -----

// CHECK: input 't' is read as 't[x, q]', and has the axes [q, x]
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[x, q] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  func.return
}

// -----

// CHECK: axis 'q' of input 't' has no cells
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [x = 16] room 4
  func.return
}

// -----

// CHECK: pieces are fed 'among' others of a range: 'from .. to ..'
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  hierarchy.stream [x = 16] among %pieces initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: pieces of 16 along 'x' are selected for a stream of others
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  hierarchy.stream [x = 32] from %low to %low among %pieces initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: pieces are selected in another range than the stream is fed
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %u: tensor<?x64xf32, #diagram.array<[q, x], level = device>>, %r: tensor<4x64xi32, #diagram.array<[q, x], level = register>>) {
  %zero = arith.constant 0 : index
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  hierarchy.stream [x = 16] from %zero to %low among %pieces initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: input 't' is named twice
func.func @f(%low: index, %t: tensor<?x64xi32, #diagram.array<[q, x], level = device>>) {
  %pieces = hierarchy.select [x = 16] from %low to %low if "t[q, x] == 1" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>, t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>) cells [q = 1, x = 16] room 4
  func.return
}

// -----

// CHECK: a recurrence takes one position after another, not pieces of 4
func.func @f() {
  hierarchy.stream [x = 4] attributes {recurs} initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

// -----

// CHECK: a stream of a recurrence alone, all of it, is fed the last piece first
func.func @f() {
  hierarchy.stream [x = 4] attributes {reverse} initialise {
    hierarchy.yield
  } step {
    hierarchy.yield
  } finish {
    hierarchy.yield
  }
  func.return
}

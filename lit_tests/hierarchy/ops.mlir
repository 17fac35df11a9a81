// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | filecheck %s --check-prefix=GENERIC

!A = tensor<?x64xf32, #diagram.array<[q, x]>>
!Ad = tensor<?x64xf32, #diagram.array<[q, x], level = device>>
!Ar = tensor<?x64xf32, #diagram.array<[q, x], level = register>>
!At = tensor<16x32xf32, #diagram.array<[q, x], level = register>>
!m = tensor<?xf32, #diagram.array<[q]>>
!mr = tensor<?xf32, #diagram.array<[q], level = register>>
!mt = tensor<16xf32, #diagram.array<[q], level = register>>
!mm = memref<?xf32, #diagram.array<[q], level = device>>

// Decorated: sizes are chosen or not yet, and the kernel yields.

// CHECK-LABEL: func.func @decorated(%A: tensor<?x64xf32, #diagram.array<[q, x]>>) -> tensor<?xf32, #diagram.array<[q]>> {
// CHECK-NEXT: %M = hierarchy.kernel @row_max (%a = %A : tensor<?x64xf32, #diagram.array<[q, x]>> as tensor<?x64xf32, #diagram.array<[q, x], level = device>>) -> (tensor<?xf32, #diagram.array<[q]>>) schedule #hierarchy.schedule<group = [q = ?], stream = [x = 32], warps = [q = 4]> attributes {note = "kept"} {
// CHECK-NEXT: %m = diagram.reduce max %a over [x] : tensor<?x64xf32, #diagram.array<[q, x], level = device>> -> tensor<?xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: hierarchy.yield %m : tensor<?xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: }
// CHECK-NEXT: func.return %M : tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT: }
// GENERIC: %M = "hierarchy.kernel"(%A) <{kernel_name = "row_max", schedule = #hierarchy.schedule<group = [q = ?], stream = [x = 32], warps = [q = 4]>}> ({
func.func @decorated(%A: !A) -> !m {
  %M = hierarchy.kernel @row_max (%a = %A : !A as !Ad) -> (!m)
      schedule #hierarchy.schedule<group = [q = ?], stream = [x = 32], warps = [q = 4]> attributes {note = "kept"} {
    %m = diagram.reduce max %a over [x] : !Ad -> !mr
    hierarchy.yield %m : !mr
  }
  func.return %M : !m
}

// Explicit: the kernel saves, pieces are loaded, and the stream has a state; or it has none.

// CHECK-LABEL: func.func @explicit(%A: tensor<?x64xf32, #diagram.array<[q, x]>>) -> tensor<?xf32, #diagram.array<[q]>> attributes {derivation = [#hierarchy.step<"streaming", "x of @row_max", "reduction", "max is associative">]} {
// CHECK-NEXT: %M = hierarchy.kernel @row_max (%a = %A : tensor<?x64xf32, #diagram.array<[q, x]>> as tensor<?x64xf32, #diagram.array<[q, x], level = device>>) saves (%O: memref<?xf32, #diagram.array<[q], level = device>>) -> (tensor<?xf32, #diagram.array<[q]>>) schedule #hierarchy.schedule<group = [q = 16], stream = [x = 32], whole = [d = 64], warps = [q = 1], subloop = [d = 16], promote = [x = 8], left = shared, turns = 3> {
// CHECK-NEXT: hierarchy.group [q = 16] {
// CHECK-NEXT: %m = hierarchy.stream [x = 32] -> (tensor<16xf32, #diagram.array<[q], level = register>>) initialise {
// CHECK-NEXT: %first = diagram.fill 0xff800000 : f32 -> tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: hierarchy.yield %first : tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: } step (%state: tensor<16xf32, #diagram.array<[q], level = register>>) {
// CHECK-NEXT: %piece = hierarchy.load %a : tensor<?x64xf32, #diagram.array<[q, x], level = device>> -> tensor<16x32xf32, #diagram.array<[q, x], level = register>>
// CHECK-NEXT: %n = diagram.extent "x" : i32
// CHECK-NEXT: %next = diagram.reduce max %piece over [x] into %state : tensor<16x32xf32, #diagram.array<[q, x], level = register>> -> tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: hierarchy.yield %next : tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: } finish (%last: tensor<16xf32, #diagram.array<[q], level = register>>) {
// CHECK-NEXT: hierarchy.yield %last : tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: }
// CHECK-NEXT: hierarchy.save %m into %O : tensor<16xf32, #diagram.array<[q], level = register>>, memref<?xf32, #diagram.array<[q], level = device>>
// CHECK-NEXT: }
// CHECK-NEXT: hierarchy.group [] {
// CHECK-NEXT: hierarchy.stream [x = 32] initialise {
// CHECK-NEXT: hierarchy.yield
// CHECK-NEXT: } step {
// CHECK-NEXT: hierarchy.yield
// CHECK-NEXT: } finish {
// CHECK-NEXT: hierarchy.yield
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: hierarchy.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return %M : tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT: }
// GENERIC: "hierarchy.group"() <{partition = #hierarchy.partition<[q = 16]>}> ({
// GENERIC: %m = "hierarchy.stream"() <{partition = #hierarchy.partition<[x = 32]>, operandSegmentSizes = array<i32: 0, 0>, regionSegmentSizes = array<i32: 1, 1, 0, 1>}> ({
// GENERIC: "hierarchy.save"(%m, %O) : (tensor<16xf32, #diagram.array<[q], level = register>>, memref<?xf32, #diagram.array<[q], level = device>>) -> ()
// GENERIC: "hierarchy.group"() <{partition = #hierarchy.partition<[]>}> ({
func.func @explicit(%A: !A) -> !m attributes {derivation = [#hierarchy.step<"streaming", "x of @row_max", "reduction", "max is associative">]} {
  %M = hierarchy.kernel @row_max (%a = %A : !A as !Ad) saves (%O: !mm) -> (!m) schedule #hierarchy.schedule<group = [q = 16], stream = [x = 32], whole = [d = 64], warps = [q = 1], subloop = [d = 16], promote = [x = 8], left = shared, turns = 3> {
    hierarchy.group [q = 16] {
      %m = hierarchy.stream [x = 32] -> (!mt) initialise {
        %first = diagram.fill 0xFF800000 : f32 -> !mt
        hierarchy.yield %first : !mt
      } step (%state: !mt) {
        %piece = hierarchy.load %a : !Ad -> !At
        %n = diagram.extent "x" : i32
        %next = diagram.reduce max %piece over [x] into %state : !At -> !mt
        hierarchy.yield %next : !mt
      } finish (%last: !mt) {
        hierarchy.yield %last : !mt
      }
      hierarchy.save %m into %O : !mt, !mm
    }
    hierarchy.group [] {
      hierarchy.stream [x = 32] initialise {
        hierarchy.yield
      } step {
        hierarchy.yield
      } finish {
        hierarchy.yield
      }
    }
    hierarchy.yield
  }
  func.return %M : !m
}

// A stream that is fed part of its axis, and tests the pieces at the border of a range.

// CHECK-LABEL: func.func @selected(%A: tensor<?x64xf32, #diagram.array<[q, x]>>) -> tensor<?xf32, #diagram.array<[q]>> {
// CHECK: hierarchy.group [q = 16] {
// CHECK-NEXT: %q0, %q_end = hierarchy.piece "q" : index, index
// CHECK-NEXT: %m = hierarchy.stream [x = 32] from %q0 to %q_end whole from %q0 to %q0 -> (tensor<16xf32, #diagram.array<[q], level = register>>) attributes {note = "kept"} initialise {
// CHECK: } step (%state: tensor<16xf32, #diagram.array<[q], level = register>>) {
// CHECK: hierarchy.yield %next : tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: } border (%before: tensor<16xf32, #diagram.array<[q], level = register>>) {
// CHECK-NEXT: hierarchy.yield %before : tensor<16xf32, #diagram.array<[q], level = register>>
// CHECK-NEXT: } finish (%last: tensor<16xf32, #diagram.array<[q], level = register>>) {
// CHECK: hierarchy.stream [x = 32] from %q0 to %q_end initialise {
// GENERIC: %q0, %q_end = "hierarchy.piece"() <{axis = "q"}> : () -> (index, index)
// GENERIC: %m = "hierarchy.stream"(%q0, %q_end, %q0, %q0) <{partition = #hierarchy.partition<[x = 32]>, operandSegmentSizes = array<i32: 4, 0>, regionSegmentSizes = array<i32: 1, 1, 1, 1>}> ({
// GENERIC: "hierarchy.stream"(%q0, %q_end) <{partition = #hierarchy.partition<[x = 32]>, operandSegmentSizes = array<i32: 2, 0>, regionSegmentSizes = array<i32: 1, 1, 0, 1>}> ({
func.func @selected(%A: !A) -> !m {
  %M = hierarchy.kernel @row_max (%a = %A : !A as !Ad) saves (%O: !mm) -> (!m) schedule #hierarchy.schedule<group = [q = 16], stream = [x = 32]> {
    hierarchy.group [q = 16] {
      %q0, %q_end = hierarchy.piece "q" : index, index
      %m = hierarchy.stream [x = 32] from %q0 to %q_end whole from %q0 to %q0 -> (!mt) attributes {note = "kept"} initialise {
        %first = diagram.fill 0xFF800000 : f32 -> !mt
        hierarchy.yield %first : !mt
      } step (%state: !mt) {
        %piece = hierarchy.load %a : !Ad -> !At
        %next = diagram.reduce max %piece over [x] into %state : !At -> !mt
        hierarchy.yield %next : !mt
      } border (%before: !mt) {
        hierarchy.yield %before : !mt
      } finish (%last: !mt) {
        hierarchy.yield %last : !mt
      }
      hierarchy.stream [x = 32] from %q0 to %q_end initialise {
        hierarchy.yield
      } step {
        hierarchy.yield
      } finish {
        hierarchy.yield
      }
      hierarchy.save %m into %O : !mt, !mm
    }
    hierarchy.yield
  }
  func.return %M : !m
}

// Pieces that a table leaves: selected once, fed by the streams of their range.

// CHECK-LABEL: func.func @among
// CHECK: %pieces = hierarchy.select [x = 32] from %q0 to %q_end if "t[q, x] == 1 or x <= q + n" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>, n = %n_1 : i32) cells [q = 8, x = 16] room 2 {note = 1 : i32}
// CHECK-NEXT: hierarchy.stream [x = 32] from %q0 to %q_end among %pieces initialise {
// CHECK: hierarchy.stream [x = 32] from %q0 to %q_end whole from %q0 to %q_end among %pieces initialise {
// GENERIC: %pieces = "hierarchy.select"(%q0, %q_end, %t, %n_1) <{partition = #hierarchy.partition<[x = 32]>, condition = #diagram.condition<"t[q, x] == 1 or x <= q + n">, names = ["t", "n"], cells = #hierarchy.partition<[q = 8, x = 16]>, room = #builtin.int<2>}> {note = 1 : i32} : (index, index, tensor<?x64xi32, #diagram.array<[q, x], level = device>>, i32) -> !hierarchy.selection
// GENERIC: "hierarchy.stream"(%q0, %q_end, %pieces) <{partition = #hierarchy.partition<[x = 32]>, operandSegmentSizes = array<i32: 2, 1>, regionSegmentSizes = array<i32: 1, 1, 0, 1>}> ({
func.func @among(%T: tensor<?x64xi32, #diagram.array<[q, x]>>, %n: i32) {
  hierarchy.kernel @among (%t = %T : tensor<?x64xi32, #diagram.array<[q, x]>> as tensor<?x64xi32, #diagram.array<[q, x], level = device>>, %n_1 = %n : i32 as i32) saves () -> () schedule #hierarchy.schedule<group = [q = 16], stream = [x = 32]> {
    hierarchy.group [q = 16] {
      %q0, %q_end = hierarchy.piece "q" : index, index
      %pieces = hierarchy.select [x = 32] from %q0 to %q_end if "t[q, x] == 1 or x <= q + n" with (t = %t : tensor<?x64xi32, #diagram.array<[q, x], level = device>>, n = %n_1 : i32) cells [q = 8, x = 16] room 2 {note = 1 : i32}
      hierarchy.stream [x = 32] from %q0 to %q_end among %pieces initialise {
        hierarchy.yield
      } step {
        hierarchy.yield
      } finish {
        hierarchy.yield
      }
      hierarchy.stream [x = 32] from %q0 to %q_end whole from %q0 to %q_end among %pieces initialise {
        hierarchy.yield
      } step {
        hierarchy.yield
      } border {
        hierarchy.yield
      } finish {
        hierarchy.yield
      }
    }
    hierarchy.yield
  }
  func.return
}

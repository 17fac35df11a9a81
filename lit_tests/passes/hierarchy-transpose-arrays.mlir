// RUN: xdsl-opt -p 'set-machine{name=a100},fusion,hierarchy-transpose-arrays' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},fusion,hierarchy-transpose-arrays{arrays=B kernel=small}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},fusion,hierarchy-transpose-arrays{arrays=D}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},fusion,hierarchy-transpose-arrays{kernel=large}' %s | filecheck %s --check-prefix KERNEL

// NONE: there is no array %D to transpose: of no kernel that reads or saves it do the groups take its neighbours
// KERNEL: there is no kernel @large

!A = tensor<?x?x128xf16, #diagram.array<[i, k, c]>>
!B = tensor<?x?x128xf16, #diagram.array<[j, k, c]>>
!C = tensor<?x?x128xf32, #diagram.array<[i, j, c]>>
!C16 = tensor<?x?x128xf16, #diagram.array<[i, j, c]>>

// What comes from the caller is copied before the product, what goes to the caller behind it. Channels come first
// between, so that k and j have their neighbours side by side.
// CHECK-LABEL: func.func @outside
// CHECK-SAME:  #hierarchy.step<"hierarchy-transpose-arrays", "%A of @outside as [c, i, k]", "order of axes", "copied by @outside_A: estimated
// CHECK-SAME:  #hierarchy.step<"hierarchy-transpose-arrays", "%B of @outside as [c, j, k]", "order of axes", "copied by @outside_B: estimated
// CHECK-SAME:  #hierarchy.step<"hierarchy-transpose-arrays", "%C16 of @outside as [c, i, j]", "order of axes", "copied by @outside_C16: estimated
// CHECK:       %A_transposed = hierarchy.kernel @outside_A (%[[A:.*]] = %A : tensor<?x?x128xf16, #diagram.array<[i, k, c]>> {{.*}}) -> (tensor<128x?x?xf16, #diagram.array<[c, i, k]>>)
// CHECK-NEXT:    %[[MOVED:.*]] = diagram.map (%[[ONE:.*]] = %[[A]] : {{.*}}) -> tensor<128x?x?xf16, #diagram.array<[c, i, k], level = register>> {
// CHECK-NEXT:      diagram.yield %[[ONE]] : f16
// CHECK:         hierarchy.yield %[[MOVED]]
// CHECK:       %B_transposed = hierarchy.kernel @outside_B
// CHECK:       %C16_transposed = hierarchy.kernel @outside (%[[L:.*]] = %A_transposed : {{.*}}, %[[R:.*]] = %B_transposed : {{.*}}) -> (tensor<128x?x?xf16, #diagram.array<[c, i, j]>>)
// CHECK:         diagram.contract %[[L]], %[[R]] over [k] accumulate f32 : tensor<128x?x?xf16, #diagram.array<[c, i, k], level = device>>, tensor<128x?x?xf16, #diagram.array<[c, j, k], level = device>>
// CHECK:       %[[C:.*]] = hierarchy.kernel @outside_C16 (%{{.*}} = %C16_transposed : tensor<128x?x?xf16, #diagram.array<[c, i, j]>> {{.*}}) -> (tensor<?x?x128xf16, #diagram.array<[i, j, c]>>)
// CHECK:       func.return %[[C]] : tensor<?x?x128xf16, #diagram.array<[i, j, c]>>
func.func @outside(%A: !A, %B: !B) -> !C16 attributes {sizes = #diagram.sizes<i = 512, k = 512, j = 512>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %C16 = diagram.cast %C : !C -> !C16
  func.return %C16 : !C16
}

// Where a launch takes longer than all of it, nothing is copied, and it is said so.
// CHECK-LABEL: func.func @small
// CHECK-SAME:  #hierarchy.step<"decline hierarchy-transpose-arrays", "%A, %B, %C16 of @small", "a tenth must be saved", "estimated
// CHECK:       hierarchy.kernel @small (%{{.*}} = %A : {{.*}}, %{{.*}} = %B :
// CHECK-NOT:   hierarchy.kernel
// Asked for, one of them is.
// ASKED-LABEL: func.func @small
// ASKED-SAME:  #hierarchy.step<"hierarchy-transpose-arrays", "%B of @small as [c, j, k]", "order of axes", "copied by @small_B: asked for">
// ASKED:       %B_transposed = hierarchy.kernel @small_B (%{{.*}} = %B :
// ASKED:       hierarchy.kernel @small (%{{.*}} = %A : {{.*}}, %{{.*}} = %B_transposed :
// ASKED-NOT:   hierarchy.kernel
func.func @small(%A: !A, %B: !B) -> !C16 attributes {sizes = #diagram.sizes<i = 16, k = 16, j = 16>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %C16 = diagram.cast %C : !C -> !C16
  func.return %C16 : !C16
}

!Z = tensor<?x?x64xf16, #diagram.array<[i, k, z]>>
!W = tensor<64x128xf16, #diagram.array<[z, c]>>
!P = tensor<?x?x128xf32, #diagram.array<[i, k, c]>>
!Bt = tensor<128x?x?xf16, #diagram.array<[c, j, k]>>
!Ct = tensor<128x?x?xf32, #diagram.array<[c, i, j]>>

// What a kernel makes for others is saved so at once, and nothing is copied.
// CHECK-LABEL: func.func @between
// CHECK-SAME:  #hierarchy.step<"hierarchy-transpose-arrays", "%A of @between_2 as [c, i, k]", "order of axes", "saved so: estimated
// CHECK:       %A = hierarchy.kernel @between_1 ({{.*}}) -> (tensor<128x?x?xf16, #diagram.array<[c, i, k]>>)
// CHECK:         %[[P:.*]] = diagram.contract {{.*}} -> tensor<?x?x128xf32, #diagram.array<[i, k, c], level = register>>
// CHECK-NEXT:    %[[A16:.*]] = diagram.cast %[[P]] : {{.*}} -> tensor<128x?x?xf16, #diagram.array<[c, i, k], level = register>>
// CHECK-NEXT:    hierarchy.yield %[[A16]]
// CHECK:       hierarchy.kernel @between_2 (%[[A:.*]] = %A : tensor<128x?x?xf16, #diagram.array<[c, i, k]>>
// CHECK-NOT:   hierarchy.kernel
// ASKED-LABEL: func.func @between
// ASKED-NOT:   "hierarchy-transpose-arrays"
func.func @between(%Z: !Z, %W: !W, %B: !Bt) -> !Ct attributes {sizes = #diagram.sizes<i = 512, k = 512, j = 512>} {
  %P = diagram.contract %Z, %W over [z] accumulate f32 : !Z, !W -> !P
  %A = diagram.cast %P : !P -> !A
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !Bt -> !Ct
  func.return %C : !Ct
}

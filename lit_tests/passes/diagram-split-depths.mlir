// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-depths{products=S}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-depths{products=S}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-expand-laws,diagram-split-depths' %s | filecheck %s --check-prefix PAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-depths{products=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-split-depths{products=O}' %s | filecheck %s --check-prefix WRONG

// WRONG: %O is no product whose summed axis is read in parts elsewhere: such are %S

!Q = tensor<?x?x576xf16, #diagram.array<[b, h, d]>>
!K = tensor<?x?x576xf16, #diagram.array<[b, x, d]>>
!V = tensor<?x?x512xf16, #diagram.array<[b, x, c]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, h, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[b, h, x]>>
!O = tensor<?x?x512xf32, #diagram.array<[b, h, c]>>

// The values are the first columns of the keys: they are multiplied with as one array, and the rest by itself.
// CHECK-LABEL: func.func @values_of_keys
// CHECK-SAME:    #hierarchy.step<"diagram-split-depths", "%S over the parts of %K along 'd'", "a sum is the sum of the sums of its parts", "asked for"
// CHECK-NEXT:    %Q_c = diagram.read %Q at "b, h, c"
// CHECK-NEXT:    %V = diagram.read %K at "b, x, c"
// CHECK-NEXT:    %S_c = diagram.contract %Q_c, %V over [c] accumulate f32
// CHECK-NEXT:    %Q_d_part = diagram.read %Q at "b, h, d_part + 512"
// CHECK-NEXT:    %K_d_part = diagram.read %K at "b, x, d_part + 512"
// CHECK-NEXT:    %S_d_part = diagram.contract %Q_d_part, %K_d_part over [d_part] accumulate f32
// CHECK-NEXT:    %S = diagram.map (%[[A:.*]] = %S_c : {{.*}}, %[[B:.*]] = %S_d_part
// CHECK-NEXT:      %[[C:.*]] = arith.addf %[[A]], %[[B]] : f32
// CHECK-NEXT:      diagram.yield %[[C]] : f32
// CHECK:         %O = diagram.contract %P16, %V over [x] accumulate f32
// PAYS-LABEL: func.func @values_of_keys
// PAYS-SAME:    #hierarchy.step<"diagram-split-depths", "%S over the parts of %K along 'd'", "a sum is the sum of the sums of its parts", "estimated
// PAYS:         %S_c = diagram.contract %Q_c, %V over [c] accumulate f32
// NONE-LABEL: func.func @values_of_keys
// NONE:         %S = diagram.contract %Q, %K over [d] accumulate f32
func.func @values_of_keys(%Q: !Q, %K: !K) -> !O attributes {sizes = #diagram.sizes<b = 64, h = 128, x = 4096>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %V = diagram.read %K at "b, x, c" : !K -> !V
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}

!q = tensor<?x96xf16, #diagram.array<[q, d]>>
!k = tensor<?x96xf16, #diagram.array<[x, d]>>
!c = tensor<?x64xf16, #diagram.array<[x, c]>>
!t = tensor<?x48xf16, #diagram.array<[x, e]>>
!s = tensor<?x?xf32, #diagram.array<[q, x]>>

// Every second column is no part, nor is what is read at other rows, or under conditions.
// CHECK-LABEL: func.func @no_parts
// CHECK:         %A = diagram.contract %Q, %K over [d] accumulate f32
// CHECK:         %C = diagram.contract %Q, %M over [d] accumulate f32
func.func @no_parts(%Q: !q, %K: !k) -> (!s, !t, !c, !s, !c) attributes {sizes = #diagram.sizes<q = 64, x = 128>} {
  %A = diagram.contract %Q, %K over [d] accumulate f32 : !q, !k -> !s
  %B = diagram.read %K at "x, 2 * e" : !k -> !t
  %D = diagram.read %K at "x - 1, c" padded : !k -> !c
  %M = diagram.where %K if "x <= 7" : !k
  %C = diagram.contract %Q, %M over [d] accumulate f32 : !q, !k -> !s
  %E = diagram.read %K at "x, c + 64" padded : !k -> !c
  func.return %A, %B, %D, %C, %E : !s, !t, !c, !s, !c
}

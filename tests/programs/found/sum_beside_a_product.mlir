// What is reduced beside a product, over an axis along which the product has neither rows nor columns, lies in one warp.
!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!V = tensor<?x64xf16, #diagram.array<[x, e]>>
!V32 = tensor<?x64xf32, #diagram.array<[x, e]>>
!v = tensor<64xf32, #diagram.array<[e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!A = tensor<?x64xf32, #diagram.array<[q, e]>>
func.func @f(%Q: !Q, %K: !K, %V: !V) -> !A attributes {sizes = #diagram.sizes<q = 70, x = 93>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %V32 = diagram.cast %V : !V -> !V32
  %v = diagram.reduce add %V32 over [x] : !V32 -> !v
  %O = diagram.map (%a = %A : !A, %b = %v : !v) -> !A {
    %t = arith.addf %a, %b : f32
    diagram.yield %t : f32
  }
  func.return %O : !A
}
